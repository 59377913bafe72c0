// Form for an input schema. Each field is {node, read()}: `read` returns its value, or undefined without input.
// The browser validates as much as it can; the server validates the rest before the call.
import { upload } from './api.js';
import { addOption, busy, button, h } from './dom.js';
import { emit } from './events.js';
import { size } from './format.js';
import { recent } from './grid.js';

const MAX_DEPTH = 6; // levels; deeper or recursive schemas are edited as JSON
const OFFERED = 100; // artifacts in the list of a file field
const MAX_FIRST_ITEMS = 20; // fields of an array that are there from the beginning
const INPUTS = { date: 'date', email: 'email', uri: 'url', color: 'color', password: 'password', time: 'time' };
let fieldCount = 0;

const star = (required) => required && h('span', { class: 'required', 'aria-hidden': true }, ' *');

/** A labelled control with its description. */
function labelled(control, { label, required, note }, hint) {
  if (!control.id) control.id = `field-${++fieldCount}`;
  const hintId = `${control.id}-hint`;
  if (hint) control.setAttribute('aria-describedby', hintId);
  return h('div', { class: 'field' },
    h('label', { for: control.id }, label, star(required), note && h('span', { class: 'muted' }, ` ${note}`)),
    hint && h('p', { class: 'hint', id: hintId }, hint),
    control);
}

/** Several fields with a common legend. */
function group(kind, schema, options, ...children) {
  return h('fieldset', { class: kind },
    h('legend', {}, options.label, star(options.required)),
    schema.description && h('p', { class: 'hint' }, schema.description),
    children);
}

function constant(schema, options) {
  const output = h('output', {}, JSON.stringify(schema.const));
  return { node: labelled(output, options, schema.description), read: () => (options.required ? schema.const : undefined) };
}

function choice(schema, options) {
  const nameOf = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
  const names = schema.enumNames ?? schema.enum.map(nameOf);
  const select = h('select', { required: options.required },
    h('option', { value: '' }, options.required ? 'Choose …' : 'Default'),
    schema.enum.map((value, index) => h('option', { value: index }, names[index])));
  const preset = schema.enum.findIndex((value) => value === schema.default);
  if (preset >= 0) select.value = preset;
  return {
    node: labelled(select, options, schema.description),
    read: () => (select.value === '' ? undefined : schema.enum[select.value]),
  };
}

function flag(schema, options) {
  if (options.required || typeof schema.default === 'boolean') {
    const box = h('input', { type: 'checkbox', id: `field-${++fieldCount}` });
    box.checked = schema.default === true;
    const node = h('div', { class: 'field' },
      h('label', { class: 'check' }, box, options.label),
      schema.description && h('p', { class: 'hint' }, schema.description));
    return { node, read: () => box.checked };
  }
  return choice({ ...schema, enum: [true, false], enumNames: ['Yes', 'No'] }, options); // "not given" is a third choice
}

/** Return the lowest and highest value of a number, as far as the browser can check them. */
function boundsOf({ type, minimum, maximum, exclusiveMinimum, exclusiveMaximum }) {
  let [low, high] = [minimum, maximum];
  if (type === 'integer') {
    if (Number.isFinite(exclusiveMinimum)) low ??= exclusiveMinimum + 1;
    if (Number.isFinite(exclusiveMaximum)) high ??= exclusiveMaximum - 1;
  }
  return [low, high];
}

function rangeText(low, high) {
  if (low !== undefined && high !== undefined) return `${low} to ${high}`;
  if (low !== undefined) return `at least ${low}`;
  return high !== undefined ? `at most ${high}` : '';
}

function number(schema, options) {
  const [low, high] = boundsOf(schema);
  const input = h('input', {
    type: 'number',
    min: low,
    max: high,
    step: schema.multipleOf ?? (schema.type === 'integer' ? 1 : 'any'),
    required: options.required,
    value: schema.default,
  });
  return {
    node: labelled(input, { ...options, note: rangeText(low, high) }, schema.description),
    read: () => (input.value === '' ? undefined : Number(input.value)),
  };
}

function string(schema, options) {
  const type = INPUTS[schema.format];
  const shared = {
    required: options.required,
    minlength: schema.minLength,
    maxlength: schema.maxLength,
    value: schema.default,
    spellcheck: 'false',
  };
  const control = type ? h('input', { type, ...shared }) : h('textarea', { rows: 1, ...shared });
  if (schema.pattern && !type) {
    control.addEventListener('input', () => {
      const fits = control.value === '' || matches(schema.pattern, control.value);
      control.setCustomValidity(fits ? '' : `must match ${schema.pattern}`);
    });
  }
  return {
    node: labelled(control, options, schema.description),
    read: () => (control.value === '' && !options.required ? undefined : control.value),
  };
}

function matches(pattern, value) {
  try {
    return new RegExp(pattern, 'u').test(value);
  } catch {
    return true; // a pattern of another dialect: the server decides
  }
}

/** A field for any other schema: JSON, validated while typing. */
export function jsonEditor(schema, options) {
  const control = h('textarea', { class: 'code', rows: 3, required: options.required, spellcheck: 'false' });
  if (schema.default !== undefined) control.value = JSON.stringify(schema.default, null, 2);
  control.addEventListener('input', () => {
    control.setCustomValidity('');
    try {
      if (control.value.trim()) JSON.parse(control.value);
    } catch (error) {
      control.setCustomValidity(`not JSON: ${error.message}`);
    }
  });
  return {
    node: labelled(control, { ...options, note: 'JSON' }, schema.description),
    read: () => (control.value.trim() ? JSON.parse(control.value) : undefined),
  };
}

function object(schema, options) {
  const required = new Set(schema.required ?? []);
  const fields = new Map();
  for (const [name, inner] of Object.entries(schema.properties)) {
    fields.set(name, field(inner, {
      ...options,
      label: inner?.title ?? name,
      // In an optional object no field is required, since all may be left out; the server reports missing fields.
      required: options.required && required.has(name),
      path: [...options.path, name],
      depth: options.depth + 1,
    }));
  }
  const nodes = [...fields.values()].map((inner) => inner.node);
  const isRoot = options.path.length === 0;
  return {
    node: isRoot ? h('div', { class: 'fields' }, nodes) : group('fields', schema, options, nodes),
    read() {
      const values = [...fields].map(([name, inner]) => [name, inner.read()]).filter(([, value]) => value !== undefined);
      return values.length || options.required ? Object.fromEntries(values) : undefined;
    },
  };
}

function array(schema, options) {
  const items = [];
  const list = h('div', { class: 'stack' });
  const add = () => {
    const inner = field(schema.items, {
      ...options,
      label: `${options.label} ${items.length + 1}`,
      required: true,
      path: [...options.path, items.length],
      depth: options.depth + 1,
    });
    items.push(inner);
    list.append(inner.node);
    less.hidden = false;
    more.hidden = items.length >= (schema.maxItems ?? Infinity);
  };
  const more = button('Add', add, { class: 'small', 'aria-label': `Add to ${options.label}` });
  const less = button('Remove the last', () => {
    items.pop().node.remove();
    less.hidden = !items.length;
    more.hidden = false;
  }, { class: 'quiet small', hidden: true, 'aria-label': `Remove the last of ${options.label}` });
  const first = Math.min(schema.minItems ?? (options.required ? 1 : 0), MAX_FIRST_ITEMS);
  while (items.length < first) add();
  return {
    node: group('stack', schema, options, list, h('div', { class: 'row' }, more, less)),
    read: () => (items.length || options.required ? items.map((inner) => inner.read() ?? null) : undefined),
  };
}

/** A path in the parameters, in the server's notation: a dot inside a key is escaped. */
function pathOf(keys) {
  const escaped = keys.map((key) => String(key).replaceAll('\\', '\\\\').replaceAll('.', '\\.'));
  return escaped.join('.');
}

/** A field for a file: a stored artifact, or a local file, which is uploaded first. */
function chooser(schema, options) {
  const select = h('select', { required: options.required }, h('option', { value: '' }, 'Choose an artifact …'));
  const local = h('input', { type: 'file', hidden: true, 'aria-label': `Local file for ${options.label}` });
  const pick = button('Upload a file', () => local.click());

  const offer = (meta) => addOption(select, meta.id, `${meta.filename} · ${size(meta.size_bytes)}`, { first: true });
  const offerRecent = () => recent().slice(0, OFFERED).reverse().forEach(offer);
  offerRecent();
  select.addEventListener('focus', offerRecent); // for those that were stored meanwhile

  const take = (file) => busy(pick, async () => {
    const meta = await upload(file);
    emit('artifact_stored', meta);
    offer(meta);
    select.value = meta.id;
    select.dispatchEvent(new Event('change', { bubbles: true }));
  });
  local.addEventListener('change', async () => {
    if (local.files.length) await take(local.files[0]);
    local.value = '';
  });

  const node = labelled(select, { ...options, note: 'file' }, schema.description);
  node.append(h('div', { class: 'row' }, select, pick, local));
  node.addEventListener('drop', (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  options.files.set(pathOf(options.path), () => (node.isConnected ? select.value : ''));
  return { node, read: () => undefined }; // the file is sent beside the parameters
}

/** Return the schema with local references resolved, and with a union with `null` made optional. */
function resolve(schema, root, depth = 0) {
  if (schema === true || schema === undefined || schema === null) return {};
  if (typeof schema.$ref === 'string' && depth < MAX_DEPTH) {
    const target = referred(schema.$ref, root);
    return { ...(target && resolve(target, root, depth + 1)), ...without(schema, '$ref') };
  }
  const branches = (schema.oneOf ?? schema.anyOf)?.filter((branch) => branch?.type !== 'null');
  if (branches?.length === 1) {
    return resolve({ ...without(schema, 'oneOf', 'anyOf'), ...branches[0] }, root, depth + 1);
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== 'null');
    return types.length === 1 ? { ...schema, type: types[0] } : without(schema, 'type');
  }
  return schema;
}

/** Return the part of the schema that a local reference names, if any. */
function referred(reference, root) {
  if (!reference.startsWith('#/')) return undefined;
  let part = root;
  for (const step of reference.slice(2).split('/')) part = part?.[step.replaceAll('~1', '/').replaceAll('~0', '~')];
  return part;
}

function without(schema, ...keys) {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !keys.includes(name)));
}

/** Return whether a field takes a file: ABP's BinaryData, or text that is declared as a file. */
function isBinary(schema) {
  const parts = schema.properties ?? {};
  if ('content' in parts && ('mimeType' in parts || 'encoding' in parts)) return true;
  if (schema.format === 'binary' || schema.format === 'byte') return true;
  return 'contentEncoding' in schema || 'contentMediaType' in schema;
}

/** Return the kind of a field: const, enum, file, boolean, number, string, object, array, or json for all others. */
function kindOf(schema, depth) {
  if ('const' in schema) return 'const';
  if (Array.isArray(schema.enum) && schema.enum.length) return 'enum';
  if (isBinary(schema)) return 'file';
  if (schema.oneOf || schema.anyOf || schema.allOf || depth > MAX_DEPTH) return 'json';
  if (schema.type === 'integer') return 'number';
  if (schema.type === 'object' || schema.properties) return Object.keys(schema.properties ?? {}).length ? 'object' : 'json';
  if (schema.type === 'array') return schema.items && !Array.isArray(schema.items) ? 'array' : 'json';
  return ['boolean', 'number', 'string'].includes(schema.type) ? schema.type : 'json';
}

const KINDS = { const: constant, enum: choice, file: chooser, boolean: flag, number, string, object, array, json: jsonEditor };

/** Return the field for a schema: `label`, `required`, and `path`, its keys in the parameters. */
export function field(schema, options) {
  const all = { depth: 0, root: schema, files: new Map(), ...options };
  const plain = resolve(schema, all.root);
  return KINDS[kindOf(plain, all.depth)](plain, all);
}

/** Return the whole form of a capability: `read()` returns `{params, files}`. */
export function formFor(schema) {
  const files = new Map();
  const hasFields = Object.keys(schema.properties ?? {}).length > 0;
  if (schema.properties && !hasFields && !schema.additionalProperties) {
    return { node: h('p', { class: 'muted' }, 'It takes no parameters.'), read: () => ({ params: {}, files: [] }) };
  }
  const all = field(schema, { label: 'Parameters', required: hasFields, path: [], files, root: schema });
  if (all.node.querySelector('.required')) {
    // Hidden from screen readers, which read "required" with each field.
    all.node.append(h('p', { class: 'hint', 'aria-hidden': true }, h('span', { class: 'required' }, '*'), ' needed'));
  }
  return {
    node: all.node,
    read() {
      const chosen = [...files].map(([param, read]) => ({ param, artifact: read() }));
      return { params: all.read() ?? {}, files: chosen.filter(({ artifact }) => artifact) };
    },
  };
}
