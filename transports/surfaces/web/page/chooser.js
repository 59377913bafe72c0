// Field for a file: a stored artifact, or a local file, which is uploaded first.
import { upload } from './api.js';
import { busy, button, h } from './dom.js';
import { emit } from './events.js';
import { size } from './format.js';
import { recent } from './grid.js';

const OFFERED = 100;

/** A path in the parameters, in the server's notation: a dot inside a key is escaped. */
function pathOf(keys) {
  const escaped = keys.map((key) => String(key).replaceAll('\\', '\\\\').replaceAll('.', '\\.'));
  return escaped.join('.');
}

export function chooser(schema, { labelled, ...options }) {
  const option = (meta) => h('option', { value: meta.id }, `${meta.filename} · ${size(meta.size_bytes)}`);
  const select = h('select', { required: options.required },
    h('option', { value: '' }, 'Choose an artifact …'),
    recent().slice(0, OFFERED).map(option));
  const local = h('input', { type: 'file', hidden: true, 'aria-label': `Local file for ${options.label}` });
  const pick = button('Upload a file', () => local.click());

  const offer = (meta) => {
    const isNew = ![...select.options].some(({ value }) => value === meta.id);
    if (isNew) select.options[0].after(option(meta));
  };
  select.addEventListener('focus', () => {
    for (const meta of recent().slice(0, OFFERED).reverse()) offer(meta); // those that were stored meanwhile
  });

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
