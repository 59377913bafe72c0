// Helpers of the user interface.

import { fileStore } from '../lib/filestore.js';

export const $ = (id) => document.getElementById(id);

export function toast(message) {
  const element = $('toast');
  element.textContent = message;
  element.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => {
    element.hidden = true;
  }, 5000);
}

/** Run an action for a button; a failure is shown, not thrown. */
export const attempt = (action) => async (event) => {
  try {
    await action(event);
  } catch (error) {
    if (error.name !== 'Cancelled') toast(error.message);
  }
};

/** Hand a Blob to the person as a download and keep it in the file list. */
export function save(blob, filename) {
  fileStore.add(filename, blob);
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = filename;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Do what only a person needs when the element first comes into the window: a page that programs use never pays for it. */
export function firstLook(element, action) {
  const observer = new IntersectionObserver(([entry]) => {
    if (!entry.isIntersecting) return;
    observer.disconnect();
    action();
  });
  observer.observe(element);
}

/** Files dropped on an element go to `receive`. */
export function acceptDrops(element, receive) {
  for (const type of ['dragenter', 'dragover']) {
    element.addEventListener(type, (event) => {
      event.preventDefault();
      element.classList.add('over');
    });
  }
  for (const type of ['dragleave', 'drop']) element.addEventListener(type, () => element.classList.remove('over'));
  element.addEventListener('drop', (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) receive([...event.dataTransfer.files]);
  });
}

export function sizeText(bytes) {
  const units = ['bytes', 'kB', 'MB', 'GB'];
  const power = bytes < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** Ask in a dialog; answers as an ABP client answers elicitation/confirm. */
export function askPerson({ params }) {
  const dialog = $('confirm');
  $('confirm-title').textContent = params.title;
  $('confirm-message').textContent = params.message;
  $('confirm-yes').textContent = params.confirmLabel;
  $('confirm-no').textContent = params.cancelLabel;
  return new Promise((resolve) => {
    dialog.returnValue = '';
    const answer = () => resolve({ success: true, data: { confirmed: dialog.returnValue === 'yes' } });
    dialog.addEventListener('close', answer, { once: true });
    dialog.showModal();
  });
}
