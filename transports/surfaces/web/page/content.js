// Previews of text, JSON, CSV and bytes, loaded in pieces. Content becomes text nodes only.
import { slice } from './api.js';
import { button, h, scroller } from './dom.js';
import { plural, size } from './format.js';

const TEXT_STEP = 256_000; // bytes
const HEX_STEP = 4096;
const MAX_JSON = 4_000_000; // bytes: a tree needs all of it
const ROWS = 200;
const COLUMNS = 100;
const CHILDREN = 100;

/** Load content in pieces: `add(bytes, last)` shows a piece, and the returned button loads the next. */
function pieces(meta, step, add) {
  let loaded = 0;
  const state = h('span', { class: 'muted' });
  const more = button('Show more', () => next());
  const foot = h('p', { class: 'row more' }, state, more);
  async function next() {
    more.disabled = true;
    try {
      const end = Math.min(loaded + step, meta.size_bytes);
      const bytes = end > loaded ? await slice(meta.id, loaded, end) : new Uint8Array();
      loaded += bytes.length;
      add(bytes, loaded >= meta.size_bytes || bytes.length === 0);
      state.textContent = loaded < meta.size_bytes ? `${size(loaded)} of ${size(meta.size_bytes)}` : '';
    } catch (error) {
      state.textContent = `The content cannot be shown: ${error.message}`;
    }
    more.disabled = false;
    more.hidden = loaded >= meta.size_bytes;
  }
  next();
  return foot;
}

export function text(meta) {
  const decoder = new TextDecoder();
  const box = h('pre', { class: 'text' });
  const foot = pieces(meta, TEXT_STEP, (bytes, last) => box.append(decoder.decode(bytes, { stream: !last })));
  return [scroller('Text', box), foot];
}

export function hex(meta) {
  const box = h('pre', { class: 'hex' });
  let offset = 0;
  const foot = pieces(meta, HEX_STEP, (bytes) => {
    const lines = [];
    for (let i = 0; i < bytes.length; i += 16) {
      const row = [...bytes.subarray(i, i + 16)];
      const digits = row.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
      const signs = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '·')).join('');
      lines.push(`${(offset + i).toString(16).padStart(8, '0')}  ${digits.padEnd(47)}  ${signs}\n`);
    }
    offset += bytes.length;
    box.append(lines.join(''));
  });
  return [scroller('Bytes in hex', box), foot];
}

/** Return a JSON value as a tree. A folded node is built when it is opened. */
export function tree(value, key = null, open = true) {
  const name = key === null ? null : [h('span', { class: 'key' }, key), ': '];
  if (value === null || typeof value !== 'object') {
    const kind = value === null ? 'null' : typeof value;
    return h('div', { class: 'leaf' }, name, h('span', { class: `value ${kind}` }, JSON.stringify(value)));
  }
  const entries = Object.entries(value);
  if (!entries.length) return h('div', { class: 'leaf' }, name, Array.isArray(value) ? '[ ]' : '{ }');
  const isList = Array.isArray(value);
  const summary = isList ? `[ ${plural(entries.length, 'item')} ]` : `{ ${plural(entries.length, 'key')} }`;
  const node = h('details', { class: 'node' }, h('summary', {}, name, h('span', { class: 'muted' }, summary)));
  const show = (from) => {
    node.append(...entries.slice(from, from + CHILDREN).map(([key, child]) => tree(child, key, false)));
    const left = entries.length - from - CHILDREN;
    if (left <= 0) return;
    const more = button(`${left.toLocaleString()} more`, () => {
      more.remove();
      show(from + CHILDREN);
    }, { class: 'quiet small' });
    node.append(more);
  };
  node.addEventListener('toggle', () => show(0), { once: true });
  node.open = open;
  return node;
}

export function json(meta) {
  if (meta.size_bytes > MAX_JSON) return text(meta);
  const box = h('div', { class: 'tree' });
  const foot = pieces(meta, MAX_JSON, (bytes) => {
    const source = new TextDecoder().decode(bytes);
    try {
      box.append(tree(JSON.parse(source)));
    } catch {
      box.append(h('p', { class: 'muted' }, 'This is not valid JSON; as text:'), h('pre', { class: 'text' }, source));
    }
  });
  return [scroller('JSON', box), foot];
}

/** Return the rows of CSV text (RFC 4180: quotes, doubled quotes, line breaks in quotes), at most `limit`. */
function rowsOf(source, delimiter, limit) {
  const rows = [[]];
  let quoted = false;
  let cell = '';
  for (let i = 0; i < source.length; i += 1) {
    const sign = source[i];
    if (quoted && sign === '"' && source[i + 1] === '"') {
      cell += '"';
      i += 1;
    } else if (quoted && sign === '"') {
      quoted = false;
    } else if (quoted) {
      cell += sign;
    } else if (sign === '"' && cell === '') {
      quoted = true;
    } else if (sign === delimiter || sign === '\n') {
      rows.at(-1).push(cell.replace(/\r$/, ''));
      cell = '';
      if (sign === '\n') rows.push([]);
      if (rows.length > limit) break;
    } else {
      cell += sign;
    }
  }
  if (cell !== '') rows.at(-1).push(cell);
  if (!rows.at(-1).length) rows.pop();
  return rows.slice(0, limit);
}

/** Return the delimiter of CSV text: the sign that splits its first line into most cells. */
function delimiterOf(source) {
  const [first] = source.split('\n', 1);
  let best = ',';
  for (const sign of [';', '\t', '|']) {
    if (first.split(sign).length > first.split(best).length) best = sign;
  }
  return best;
}

export function csv(meta) {
  let source = '';
  let rowLimit = ROWS;
  const decoder = new TextDecoder();
  const box = h('div');
  const render = (all) => {
    const rows = rowsOf(source, delimiterOf(source), rowLimit + 2);
    if (!all && rows.length < rowLimit + 2) rows.pop(); // the last row may be cut in the middle
    const [head = [], ...body] = rows;
    const cut = body.length > rowLimit;
    const cells = (row, tag, attributes) => row.slice(0, COLUMNS).map((cell) => h(tag, attributes, cell));
    box.replaceChildren(h('table', {},
      h('thead', {}, h('tr', {}, cells(head, 'th', { scope: 'col' }))),
      h('tbody', {}, body.slice(0, rowLimit).map((row) => h('tr', {}, cells(row, 'td'))))));
    if (head.length > COLUMNS) box.append(h('p', { class: 'muted' }, `The first ${COLUMNS} of ${head.length} columns.`));
    if (cut) {
      box.append(button('More rows', () => {
        rowLimit += 1000;
        render(all);
      }));
    }
  };
  const foot = pieces(meta, TEXT_STEP, (bytes, last) => {
    source += decoder.decode(bytes, { stream: !last });
    render(last);
  });
  return [scroller('Table', box), foot];
}
