// fault.native_ui: dialogs, printing, downloads, windows, file choosers, the clipboard, as apps use them by themselves.

import { downloadAddress } from '../lib/page.js';
import { generateBytes } from '../generate.js';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const named = (promise) => promise.then((value) => value ?? 'done', (error) => error.name);
const within = (ms, promise) => Promise.race([promise, pause(ms).then(() => 'nothing')]);
const blobUrl = (content, type) => URL.createObjectURL(new Blob([content], { type }));

/** As large as `bytes`; a reader sees where it ends. */
const PDF = '%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\ntrailer << /Root 1 0 R >>\n%%EOF\n';

/**
 * Print content of its own. `clear`: when it is taken away: "at once" after print() has returned, or never ("no", then
 * the app's own afterprint does it). `size`: of the paper, or "". `how`: "kept" is the print() that the app's first script kept.
 */
function print({ text = 'printed', clear = 'at once', how = 'own', size = '100mm 100mm' }) {
  const root = document.getElementById('print-root');
  const heading = document.createElement('h1');
  heading.textContent = text;
  const canvas = Object.assign(document.createElement('canvas'), { width: 40, height: 40 });
  const brush = canvas.getContext('2d');
  brush.fillStyle = '#ff0000';
  brush.fillRect(0, 0, 40, 40);
  const style = new CSSStyleSheet();
  style.replaceSync(size && `@page { size: ${size} }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, style];
  root.replaceChildren(heading, canvas);
  const heard = [];
  const hear = (event) => heard.push(event.type);
  for (const type of ['beforeprint', 'afterprint']) window.addEventListener(type, hear);
  if (how === 'kept') window.workbenchFirst.print();
  else window.print();
  for (const type of ['beforeprint', 'afterprint']) window.removeEventListener(type, hear);
  brush.fillStyle = '#0000ff';
  brush.fillRect(0, 0, 40, 40);
  document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== style);
  if (clear === 'at once') root.replaceChildren();
  return heard;
}

function popup({ shows = 'page' }) {
  const urls = {
    page: () => '/static/blank.html?token=secret',
    file: () => '/static/sample.pdf',
    html: () => blobUrl('<!doctype html><h1>shown</h1>', 'text/html'),
    pdf: () => blobUrl(PDF, 'application/pdf'),
    octets: () => blobUrl(generateBytes(1000, 3), 'application/octet-stream'),
    download: () => downloadAddress('downloads/1000/4/window.bin', {}).downloadUrl,
    nothing: () => '',
  };
  const url = urls[shows]();
  const opened = window.open(url) !== null;
  if (url.startsWith('blob:')) URL.revokeObjectURL(url); // as many do, at once
  return opened;
}

/** `url` instead of a file of `bytes`. `how`: a link with `download` ("link", also by an event, "event", or inside the document, "attached"), a page that
 * becomes a download ("navigate"), or one in a frame ("frame"). Small content is a blob. */
function download({ how = 'link', bytes = 1000, seed = 0, filename = 'app.bin', remote = false, url }) {
  const downloadUrl = url ?? downloadAddress(`downloads/${bytes}/${seed}/${filename}`, {}).downloadUrl;
  if (how === 'navigate') {
    location.href = downloadUrl;
    return 'begun';
  }
  if (how === 'frame') {
    const frame = Object.assign(document.createElement('iframe'), { src: downloadUrl, hidden: true });
    document.body.append(frame);
    setTimeout(() => frame.remove(), 5000);
    return 'begun';
  }
  const href = remote || url ? downloadUrl : blobUrl(generateBytes(bytes, seed), 'application/octet-stream');
  const link = Object.assign(document.createElement('a'), { href, download: filename });
  if (how === 'attached') document.body.append(link);
  if (how === 'event') link.dispatchEvent(new MouseEvent('click'));
  else link.click();
  link.remove();
  return 'begun';
}

const choose = ({ label = false }) => {
  const input = Object.assign(document.createElement('input'), { type: 'file', multiple: true });
  const answered = new Promise((resolve) => {
    input.addEventListener('cancel', () => resolve('cancel'));
    input.addEventListener('change', () => resolve(`${input.files.length} files`));
  });
  if (label) {
    const around = document.createElement('label');
    around.append(input);
    around.click();
  } else input.click();
  return within(2000, answered);
};

async function copy({ text = 'copied', type, content = text }) {
  if (type === undefined) return named(navigator.clipboard.writeText(text));
  return named(navigator.clipboard.write([new ClipboardItem({ [type]: new Blob([content], { type }) })]));
}

const share = ({ title = 'shared', file }) => {
  const files = file ? [new File(['shared bytes'], file, { type: 'text/plain' })] : [];
  return named(navigator.share(file ? { files } : { title }));
};

const notify = ({ title = 'noticed', body }) => new Notification(title, { body }).title;

const ask = ({ name }) => {
  const questions = {
    notifications: () => Notification.requestPermission(),
    geolocation: () => new Promise((resolve) => {
      navigator.geolocation.getCurrentPosition(() => resolve('here'), (error) => resolve(`error ${error.code}`));
    }),
    camera: () => navigator.mediaDevices.getUserMedia({ video: true }),
    clipboard: () => navigator.clipboard.readText(),
    midi: () => navigator.requestMIDIAccess({ sysex: true }),
    fonts: () => window.queryLocalFonts(),
    screens: () => window.getScreenDetails(),
    capture: () => navigator.mediaDevices.getDisplayMedia(),
    idle: () => window.IdleDetector.requestPermission(),
  };
  return within(2000, named(questions[name]()));
};

const steps = {
  alert: ({ message = 'an alert' }) => window.alert(message) ?? null,
  confirm: ({ message = 'sure?' }) => window.confirm(message),
  prompt: ({ message = 'name?', value = 'suggested' }) => window.prompt(message, value),
  print, popup, download, choose, copy, share, notify, ask,
  pick: ({ picker = 'showOpenFilePicker' }) => within(2000, named(window[picker]())),
  wait: ({ ms = 100 }) => pause(ms).then(() => 'waited'),
};

export async function nativeUi({ do: list, later, binary = false }) {
  const perform = async () => {
    const got = [];
    for (const { kind, ...more } of list) got.push(await steps[kind](more));
    return got;
  };
  if (later !== undefined) {
    setTimeout(perform, later);
    return { got: [] };
  }
  const got = await perform();
  const file = { content: new TextEncoder().encode(PDF), mimeType: 'application/pdf', size: PDF.length, filename: 'own.pdf' };
  return binary ? { got, file } : { got };
}
