// Thumbnails of artifacts: the image itself, a page, a frame, a waveform, the first lines of a text, or a sheet with a label.
import { slice } from './api.js';
import { h } from './dom.js';
import { label } from './format.js';

const LARGEST_IMAGE = 16_000_000; // bytes; for a larger image the server makes a thumbnail
const FIRST_LINES = 600; // bytes
const STAY = 120; // ms

const sheet = (meta) => h('span', { class: 'sheet', 'aria-hidden': true }, label(meta));

const staying = new WeakMap(); // element → timer

/** Dispatches `seen` on an element once it has stayed near the screen: a card that is scrolled past is not read. */
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    clearTimeout(staying.get(target));
    if (isIntersecting) staying.set(target, setTimeout(show, STAY, target));
  }
}, { rootMargin: '200px' });

function show(target) {
  observer.unobserve(target);
  target.dispatchEvent(new Event('seen'));
}

function picture(meta, src) {
  // An <img> does not run scripts of an SVG, nor load its references.
  const image = h('img', { alt: '', decoding: 'async' });
  image.addEventListener('error', () => image.replaceWith(sheet(meta)));
  image.addEventListener('seen', () => image.setAttribute('src', src));
  observer.observe(image);
  return image;
}

function lines(meta) {
  const box = h('span', { class: 'lines', 'aria-hidden': true });
  const read = async () => {
    try {
      box.textContent = new TextDecoder().decode(await slice(meta.id, 0, FIRST_LINES));
    } catch {
      box.replaceWith(sheet(meta));
    }
  };
  box.addEventListener('seen', read);
  observer.observe(box);
  return box;
}

/** A sheet until the card is seen, then the preview by a function of cards.js. */
function whenSeen(meta, maker) {
  const first = sheet(meta);
  first.addEventListener('seen', async () => {
    try {
      const cards = await import('./cards.js');
      first.replaceWith(await cards[maker](meta));
    } catch {
      // The sheet stays.
    }
  });
  observer.observe(first);
  return first;
}

const MAKERS = { video: 'videoFrame', audio: 'waveform' };

function contentOf(meta) {
  if (MAKERS[meta.preview] && meta.size_bytes > 0) return whenSeen(meta, MAKERS[meta.preview]);
  if (meta.preview === 'pdf' || meta.mime_type === 'image/tiff') return picture(meta, `${meta.url}/thumbnail`);
  if (isImage(meta)) return picture(meta, meta.size_bytes > LARGEST_IMAGE ? `${meta.url}/thumbnail` : meta.url);
  if (['text', 'json', 'csv'].includes(meta.preview) && meta.size_bytes > 0) return lines(meta);
  return sheet(meta);
}

export function thumbnail(meta) {
  return h('span', { class: 'thumb', 'data-kind': meta.preview }, contentOf(meta));
}

export const isSvg = (meta) => meta.mime_type.startsWith('image/svg');
const isImage = (meta) => meta.preview === 'image' || isSvg(meta);
