// Requests of a HAR as a table. The rows are text, and their number is limited; a file that is too large or not a HAR is shown as text.
import { slice } from './api.js';
import { text } from './content.js';
import { button, h } from './dom.js';
import { duration, size } from './format.js';

const LARGEST = 8_000_000; // bytes: the whole file is parsed
const ROWS = 100;
const HEADS = ['Method', 'Address', 'Status', 'Type', 'Size', 'Time'];

function row({ request, response, time }) {
  const status = response?.status ?? 0;
  const bytes = response?.content?.size;
  return h('tr', { 'data-failed': status === 0 || status >= 400 },
    h('td', {}, String(request?.method ?? '')),
    h('td', { class: 'address' }, String(request?.url ?? '')),
    h('td', {}, status > 0 ? String(status) : response?._failureText ?? 'failed'),
    h('td', {}, String(response?.content?.mimeType ?? '').split(';')[0]),
    h('td', {}, Number.isFinite(bytes) && bytes >= 0 ? size(bytes) : ''),
    h('td', {}, Number.isFinite(time) && time >= 0 ? duration(time) : ''));
}

function table(entries) {
  const body = h('tbody');
  const more = button('More requests', () => add());
  function add() {
    const from = body.childElementCount;
    body.append(...entries.slice(from, from + ROWS).map(row));
    more.hidden = body.childElementCount >= entries.length;
  }
  add();
  const head = h('thead', {}, h('tr', {}, HEADS.map((text) => h('th', { scope: 'col' }, text))));
  return [h('table', { class: 'requests' }, head, body), more];
}

export function har(meta) {
  if (meta.size_bytes > LARGEST) return text(meta);
  const box = h('div', { class: 'scroller', tabindex: 0, role: 'region', 'aria-label': 'Requests' });
  async function load() {
    try {
      const bytes = await slice(meta.id, 0, meta.size_bytes);
      const { entries } = JSON.parse(new TextDecoder().decode(bytes)).log;
      if (entries.length) box.append(...table(entries));
      else box.append(h('p', { class: 'muted' }, 'No request was made meanwhile.'));
    } catch {
      box.replaceWith(...text(meta));
    }
  }
  load();
  return box;
}
