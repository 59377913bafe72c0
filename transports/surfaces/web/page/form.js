// Form for an input schema. Each field is {node, read()}: `read` returns its value, or undefined without input.
// The browser validates as much as it can; the server validates the rest before the call.
import { chooser } from './chooser.js';
import { button, h } from './dom.js';
import { kindOf, resolve } from './schema.js';

const INPUTS = { date: 'date', email: 'email', uri: 'url', color: 'color', password: 'password', time: 'time' };
let fieldCount = 0;

/** A labelled control with its description. */
function labelled(control, { label, required, note }, hint) {
  const id = control.id || (control.id = `field-${++fieldCount}`);
  if (hint) control.setAttribute('aria-describedby', `${id}-hint`);
  return h('div', { class: 'field' },
    h('label', { for: id }, label, required && h('span', { class: 'required', 'aria-hidden': true }, ' *'), note && h('span', { class: 'muted' }, ` ${note}`)),
    hint && h('p', { class: 'hint', id: `${id}-hint` }, hint), control);
}

function constant(schema, options) {
  const output = h('output', {}, JSON.stringify(schema.const));
  return { node: labelled(output, options, schema.description), read: () => (options.required ? schema.const : undefined) };
}

function choice(schema, options) {
  const names = schema.enumNames ?? schema.enum.map((value) => (typeof value === 'string' ? value : JSON.stringify(value)));
  const select = h('select', { required: options.required },
    h('option', { value: '' }, options.required ? 'Choose …' : 'Default'),
    schema.enum.map((value, index) => h('option', { value: index }, names[index])));
  const preset = schema.enum.findIndex((value) => value === schema.default);
  if (preset >= 0) select.value = preset;
  return { node: labelled(select, options, schema.description), read: () => (select.value === '' ? undefined : schema.enum[select.value]) };
}

function flag(schema, options) {
  if (options.required || typeof schema.default === 'boolean') {
    const box = h('input', { type: 'checkbox', id: `field-${++fieldCount}` });
    box.checked = schema.default === true;
    const node = h('div', { class: 'field' }, h('label', { class: 'check' }, box, options.label), schema.description && h('p', { class: 'hint' }, schema.description));
    return { node, read: () => box.checked };
  }
  return choice({ ...schema, enum: [true, false], enumNames: ['Yes', 'No'] }, options); // "not given" is a third choice
}

function number(schema, options) {
  const whole = schema.type === 'integer';
  const low = schema.minimum ?? (whole && Number.isFinite(schema.exclusiveMinimum) ? schema.exclusiveMinimum + 1 : undefined);
  const high = schema.maximum ?? (whole && Number.isFinite(schema.exclusiveMaximum) ? schema.exclusiveMaximum - 1 : undefined);
  const input = h('input', { type: 'number', min: low, max: high, step: schema.multipleOf ?? (whole ? 1 : 'any'), required: options.required, value: schema.default });
  const range = low !== undefined && high !== undefined ? `${low} to ${high}` : low !== undefined ? `at least ${low}` : high !== undefined ? `at most ${high}` : '';
  return { node: labelled(input, { ...options, note: range }, schema.description), read: () => (input.value === '' ? undefined : Number(input.value)) };
}

function string(schema, options) {
  const type = INPUTS[schema.format];
  const shared = { required: options.required, minlength: schema.minLength, maxlength: schema.maxLength, value: schema.default, spellcheck: 'false' };
  const control = type ? h('input', { type, ...shared }) : h('textarea', { rows: 1, ...shared });
  if (schema.pattern && !type) {
    control.addEventListener('input', () => control.setCustomValidity(control.value && !matches(schema.pattern, control.value) ? `must match ${schema.pattern}` : ''));
  }
  return { node: labelled(control, options, schema.description), read: () => (control.value === '' && !options.required ? undefined : control.value) };
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
  const needed = new Set(schema.required ?? []);
  // In an optional object no field is required, since all may be left out; the server reports missing fields.
  const fields = Object.entries(schema.properties).map(([name, inner]) => [
    name, field(inner, { ...options, label: inner?.title ?? name, required: options.required && needed.has(name), path: [...options.path, name], depth: options.depth + 1 }),
  ]);
  const nodes = fields.map(([, inner]) => inner.node);
  const node = options.path.length
    ? h('fieldset', { class: 'fields' }, h('legend', {}, options.label, options.required && h('span', { class: 'required', 'aria-hidden': true }, ' *')), schema.description && h('p', { class: 'hint' }, schema.description), nodes)
    : h('div', { class: 'fields' }, nodes);
  return {
    node,
    read() {
      const given = fields.map(([name, inner]) => [name, inner.read()]).filter(([, value]) => value !== undefined);
      return given.length || options.required ? Object.fromEntries(given) : undefined;
    },
  };
}

function array(schema, options) {
  const items = [];
  const list = h('div', { class: 'stack' });
  const add = () => {
    const inner = field(schema.items, { ...options, label: `${options.label} ${items.length + 1}`, required: true, path: [...options.path, items.length], depth: options.depth + 1 });
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
  for (let i = 0; i < (schema.minItems ?? (options.required ? 1 : 0)) && i < 20; i += 1) add();
  const node = h('fieldset', { class: 'stack' }, h('legend', {}, options.label, options.required && h('span', { class: 'required', 'aria-hidden': true }, ' *')),
    schema.description && h('p', { class: 'hint' }, schema.description), list, h('div', { class: 'row' }, more, less));
  return { node, read: () => (items.length || options.required ? items.map((inner) => inner.read() ?? null) : undefined) };
}

const KINDS = { const: constant, enum: choice, file: chooser, boolean: flag, number, string, object, array, json: jsonEditor };

/** Return the field for a schema: `label`, `required`, and `path`, its keys in the parameters. */
export function field(schema, options) {
  const all = { depth: 0, root: schema, files: new Map(), ...options };
  const plain = resolve(schema, all.root);
  return KINDS[kindOf(plain, all.depth)](plain, { ...all, labelled });
}

/** Return the whole form of a capability: `read()` returns `{params, files}`. */
export function formFor(schema) {
  const files = new Map();
  const none = schema.properties && !Object.keys(schema.properties).length && !schema.additionalProperties;
  if (none) return { node: h('p', { class: 'muted' }, 'It takes no parameters.'), read: () => ({ params: {}, files: [] }) };
  const fields = Object.keys(schema.properties ?? {}).length > 0;
  const all = field(schema, { label: 'Parameters', required: fields, path: [], files, root: schema });
  // Read out with each field already, as "required".
  if (all.node.querySelector('.required')) all.node.append(h('p', { class: 'hint', 'aria-hidden': true }, h('span', { class: 'required' }, '*'), ' needed'));
  return {
    node: all.node,
    read: () => ({ params: all.read() ?? {}, files: [...files].filter(([, choose]) => choose()).map(([param, choose]) => ({ param, artifact: choose() })) }),
  };
}
