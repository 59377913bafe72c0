// Thumbnails of artifacts: the image itself, the first lines of a text, or a sheet with a label.
import { slice } from './api.js';
import { h } from './dom.js';
import { label } from './format.js';

const LARGEST_IMAGE = 16_000_000; // bytes; a larger one is only shown when it is opened
const FIRST_LINES = 600; // bytes

const sheet = (meta) => h('span', { class: 'sheet', 'aria-hidden': true }, label(meta));

/** Dispatches `seen` on an element when it first comes near the screen. */
const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    target.dispatchEvent(new Event('seen'));
  }
}, { rootMargin: '200px' });

function picture(meta) {
  // An <img> runs no script of an SVG and loads nothing that it refers to.
  const image = h('img', { src: meta.url, alt: '', loading: 'lazy', decoding: 'async' });
  image.addEventListener('error', () => image.replaceWith(sheet(meta)));
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

export function thumbnail(meta) {
  let content = sheet(meta);
  if (isImage(meta) && meta.size_bytes <= LARGEST_IMAGE) content = picture(meta);
  else if (['text', 'json', 'csv'].includes(meta.preview) && meta.size_bytes > 0) content = lines(meta);
  return h('span', { class: 'thumb', 'data-kind': meta.preview }, content);
}

export const isSvg = (meta) => meta.mime_type.startsWith('image/svg');
export const isImage = (meta) => meta.preview === 'image' || isSvg(meta);
