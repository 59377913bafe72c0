// fault.*: calls that go wrong on purpose, each in one known way.

import { RawAnswer } from '../protocol/errors.js';
import { encodeBase64 } from '../lib/base64.js';
import { downloadAddress, otherOrigin } from '../lib/page.js';
import { generateBytes } from '../generate.js';
import { pause } from './jobs.js';
import { nativeUi } from './native.js';

const forever = () => new Promise(() => {});
const text = (value) => new TextEncoder().encode(value);
const BYTES_NEEDING_URL_SAFE = Uint8Array.from({ length: 200 }, (_, at) => [0xfb, 0xef, 0xff, at][at % 4]);

/** About as much of a PDF as a type sniffer looks at. */
const pdf = () => text(`%PDF-1.4\n${'1 0 obj << /Type /Catalog >> endobj\n'.repeat(40)}%%EOF\n`);

const pdfOf = (size, more = {}) => {
  const bytes = pdf();
  return { content: bytes.buffer, mimeType: 'application/pdf', size: size ?? bytes.length, filename: 'report.pdf', ...more };
};
const base64File = (content, size) => ({ content, mimeType: 'application/octet-stream', encoding: 'base64', size });
const document_ = (document) => ({ document, note: 'metadata beside the file' });

const content = {
  wrong_size: async ({ delta = 1 }) => document_(pdfOf(pdf().length + delta)),
  bad_size: async ({ value }) => document_({ ...pdfOf(), size: value }),
  bad_base64: async () => document_(base64File(`${encodeBase64(pdf()).slice(0, 40)}*!?${encodeBase64(pdf())}`, pdf().length)),
  // 'QQ==' is the letter A; 'QR==' says the same with a stray bit set.
  noncanonical_base64: async () => document_(base64File('QR==', 1)),
  no_padding: async () => {
    const bytes = pdf().slice(0, 1000);
    return document_(base64File(encodeBase64(bytes).replace(/=+$/, ''), bytes.length));
  },
  url_safe_base64: async () => {
    const urlSafe = encodeBase64(BYTES_NEEDING_URL_SAFE).replaceAll('+', '-').replaceAll('/', '_');
    return document_(base64File(urlSafe, BYTES_NEEDING_URL_SAFE.length));
  },
  wrong_mime: async () => {
    const bytes = text('<!doctype html><html><body><script>alert(1)</script></body></html>');
    return { image: { content: bytes.buffer, mimeType: 'image/png', size: bytes.length, filename: 'picture.png' } };
  },
  bad_name: async ({ filename = '../../etc/passwd' }) => document_(pdfOf(undefined, { filename })),
  partial: async ({ index = 1, count = 3 }) => ({
    files: Array.from({ length: count }, (_, at) => {
      const bytes = generateBytes(2000 + at, at);
      const size = bytes.length + (at === index ? 1 : 0);
      return { content: bytes, mimeType: 'application/octet-stream', size, filename: `part-${at}.bin` };
    }),
  }),
};

/** A reference to /faults/<where>/..., with `query` on the address. */
function reference(where, { bytes = 1 << 20, seed = 0, auth, absolute }, query = {}) {
  const filename = 'download.bin';
  const address = downloadAddress(`faults/${where}/${bytes}/${seed}/${filename}`, { auth, absolute, ...query });
  return document_({ ...address, mimeType: 'application/octet-stream', size: bytes, filename });
}

const downloads = {
  short_download: async (params) =>
    reference('short', params, { delta: params.delta, cut: params.how === 'cut' ? 1 : undefined }),
  long_download: async (params) =>
    reference('long', params, { delta: params.delta, endless: params.how === 'endless' ? 1 : undefined }),
  cut_once: async (params) => reference(`cut_once/${crypto.randomUUID()}`, params),
  gone: async ({ status = 404, times = 0, retryAfter, ...params }) =>
    reference(`status/${status}/${times}/${crypto.randomUUID()}`, params, { retry: retryAfter }),
  expired: async ({ ago = 60, ...params }) => {
    const expiresAt = Date.now() - ago * 1000;
    const { bytes = 1 << 20, seed = 0, auth, absolute } = params;
    const address = downloadAddress(`downloads/${bytes}/${seed}/download.bin`, { auth, absolute, expires: expiresAt });
    return document_({ ...address, mimeType: 'application/octet-stream', size: bytes, filename: 'download.bin', expiresAt });
  },
  redirect_away: async (params) => reference('redirect_away', { auth: 'bearer', ...params }),
};

const behaviour = {
  never: forever, // its definition says ignoresCancel
  spin: async ({ ms = Infinity }) => {
    const end = performance.now() + ms;
    while (performance.now() < end); // a busy page, on purpose
    return { ms };
  },
  throws: async ({ message = 'this handler throws' }) => {
    throw new TypeError(message);
  },
  rejects_string: () => Promise.reject('a plain string'), // eslint-disable-line prefer-promise-reject-errors
  slow: async ({ ms = 1000 }, { signal }) => {
    await pause(ms, signal);
    return { ms };
  },
  native_ui: nativeUi,
  alert: async ({ kind = 'alert', message = 'an alert from the app' }) => ({ answer: window[kind](message) ?? null }),
  navigate: async ({ how = 'href' }, { callId }) => {
    if (how === 'reload') location.reload();
    else if (how === 'away') location.href = `${otherOrigin}embed/shouter#${encodeURIComponent(callId)}`;
    else location.href = '/static/blank.html';
    return forever();
  },
};

const answers = {
  deep: async ({ depth = 100 }) => {
    let nested = { bottom: true };
    for (let level = 1; level < depth; level += 1) nested = { nested };
    return nested;
  },
  big_json: async ({ megabytes = 1 }) => {
    const note = 'x'.repeat(1000);
    return { rows: Array.from({ length: megabytes * 1024 }, (_, row) => ({ row, note })) };
  },
  crash_half: async () => new RawAnswer({ success: true }),
  bad_answer: async ({ value }) => new RawAnswer(value),
  status_only: async () => ({ success: true, message: 'The report was saved.', filename: 'report.pdf' }),
};

const all = { ...content, ...downloads, ...behaviour, ...answers };
const handlers = Object.fromEntries(Object.entries(all).map(([name, handler]) => [`fault.${name}`, handler]));

/** With `given` parameters, as the app's ordinary behaviour: callers need not and cannot give them. */
function bound(definition, handler, given) {
  const { properties, required = [], ...rest } = definition.inputSchema;
  const free = (name) => !(name in given);
  const left = Object.fromEntries(Object.entries(properties).filter(([name]) => free(name)));
  const inputSchema = { ...rest, properties: left, required: required.filter(free) };
  return [{ ...definition, inputSchema }, (params, context) => handler({ ...params, ...given }, context)];
}

/** All can be called; listed are those that the page's options name, or all of them. */
export function addFaults(registry, definitions, { faults, given }) {
  const named = new Set((faults ?? '').split(',').filter(Boolean).map((name) => `fault.${name}`));
  for (const definition of definitions) {
    const handler = handlers[definition.name];
    if (named.has(definition.name)) registry.add(...bound(definition, handler, given));
    else registry.add(definition, handler, faults === '');
  }
}
