// Previews of artifacts, by kind, without letting an artifact run anything.
//
// No artifact runs scripts or uses the network here: images, audio and video are elements that run nothing; text, JSON, CSV
// and bytes are fetched and become text nodes; HTML is shown as its source. Only a PDF is shown in a frame. The frame has no
// sandbox attribute, since Chromium's viewer does not work in one. Its type is fixed (`nosniff`), so that HTML that claims to be
// a PDF stays a broken PDF, and the viewer is a separate process, which gives scripts of a PDF no access to this page.
import { csv, hex, json, text } from './content.js';
import { h } from './dom.js';
import { har } from './har.js';
import { isSvg } from './thumbs.js';

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

const KINDS = { har, image, pdf, audio, video, text, json, csv, hex };

export function preview(meta) {
  const show = isSvg(meta) ? svg : (KINDS[meta.evidence] ?? KINDS[meta.preview] ?? hex);
  return h('div', { class: 'preview', 'data-kind': meta.preview }, show(meta));
}
