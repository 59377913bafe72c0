// Previews of artifacts, by kind, without letting an artifact run anything.
//
// No artifact runs scripts or uses the network here: images, audio and video are elements that run nothing; text, JSON, CSV
// and bytes are fetched and become text nodes; HTML is shown as its source. Only a PDF is shown in a frame. The frame has no
// sandbox attribute, since Chromium's viewer does not work in one. Its type is fixed (`nosniff`), so that HTML that claims to be
// a PDF stays a broken PDF, and the viewer is a separate process, which gives scripts of a PDF no access to this page.
import { slice } from './api.js';
import { csv, hex, json, text } from './content.js';
import { button, h, scroller } from './dom.js';
import { duration, size } from './format.js';
import { isSvg } from './thumbs.js';

const LARGEST_HAR = 8_000_000; // bytes: the whole file is parsed
const ROWS = 100;
const HEADS = ['Method', 'Address', 'Status', 'Type', 'Size', 'Time'];

function image(meta) {
  const state = h('p', { class: 'muted' });
  const picture = h('img', { class: 'picture', src: meta.url, alt: `Picture: ${meta.filename}` });
  picture.addEventListener('load', () => (state.textContent = `${picture.naturalWidth} × ${picture.naturalHeight} pixels`));
  picture.addEventListener('error', () => (state.textContent = 'The browser cannot show this image.'));
  return [h('div', { class: 'mat' }, picture), state];
}

function svg(meta) {
  return [image(meta), h('details', {}, h('summary', {}, 'Source'), text(meta))];
}

function pdf(meta) {
  return h('iframe', { class: 'document', src: `${meta.url}#navpanes=0&view=FitH`, title: `PDF: ${meta.filename}` });
}

const player = (meta) => ({ controls: true, preload: 'metadata', src: meta.url, 'aria-label': meta.filename });
const audio = (meta) => h('audio', player(meta));
const video = (meta) => h('video', { ...player(meta), playsinline: true });

function requestRow({ request, response, time }) {
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

function requestTable(entries) {
  const body = h('tbody');
  const more = button('More requests', () => add());
  function add() {
    const from = body.childElementCount;
    body.append(...entries.slice(from, from + ROWS).map(requestRow));
    more.hidden = body.childElementCount >= entries.length;
  }
  add();
  const head = h('thead', {}, h('tr', {}, HEADS.map((text) => h('th', { scope: 'col' }, text))));
  return [h('table', { class: 'requests' }, head, body), more];
}

/** Requests of a HAR as a table. A file that is too large or not a HAR is shown as text. */
function har(meta) {
  if (meta.size_bytes > LARGEST_HAR) return text(meta);
  const box = scroller('Requests');
  async function load() {
    try {
      const bytes = await slice(meta.id, 0, meta.size_bytes);
      const { entries } = JSON.parse(new TextDecoder().decode(bytes)).log;
      if (entries.length) box.append(...requestTable(entries));
      else box.append(h('p', { class: 'muted' }, 'No request was made meanwhile.'));
    } catch {
      box.replaceWith(...text(meta));
    }
  }
  load();
  return box;
}

const KINDS = { har, image, pdf, audio, video, text, json, csv, hex };

export function preview(meta) {
  const show = isSvg(meta) ? svg : (KINDS[meta.evidence] ?? KINDS[meta.preview] ?? hex);
  return h('div', { class: 'preview', 'data-kind': meta.preview }, show(meta));
}
