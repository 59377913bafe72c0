// BinaryData: reading what a caller sent and wrapping what goes back.

import { AbpError } from '../protocol/errors.js';
import { decodeBase64, encodeBase64 } from './base64.js';

const tag = (value) => Object.prototype.toString.call(value).slice(8, -1); // works for objects of other frames too

function decodeText(content, encoding, where) {
  if (encoding === 'utf-8') return { bytes: new TextEncoder().encode(content), received: 'utf-8' };
  if (encoding !== 'base64') {
    throw new AbpError('MISSING_PARAM', `${where}.encoding must say 'base64' or 'utf-8' because content is a string`);
  }
  try {
    return { bytes: decodeBase64(content), received: 'base64' };
  } catch {
    throw new AbpError('INVALID_PARAMS', `${where}.content is not valid base64`);
  }
}

async function contentBytes(content, encoding, where) {
  if (typeof content === 'string') return decodeText(content, encoding, where);
  const kind = tag(content);
  if (ArrayBuffer.isView(content)) {
    return { bytes: new Uint8Array(content.buffer, content.byteOffset, content.byteLength), received: kind };
  }
  if (kind === 'ArrayBuffer') return { bytes: new Uint8Array(content), received: kind };
  if (kind === 'SharedArrayBuffer') return { bytes: new Uint8Array(content).slice(), received: kind };
  if (kind === 'Blob' || kind === 'File') return { bytes: new Uint8Array(await content.arrayBuffer()), received: kind };
  if (Array.isArray(content) && content.every((n) => Number.isInteger(n) && n >= 0 && n <= 255)) {
    return { bytes: Uint8Array.from(content), received: 'Array' };
  }
  throw new AbpError(
    'INVALID_TYPE',
    `${where}.content must be an ArrayBuffer, a typed array, a Blob or a string with an encoding, not ${kind}`,
  );
}

/** The bytes of a BinaryData parameter and the form they came in: {bytes, received, mimeType}. */
export async function readBinary(value, where = 'file') {
  if (value?.content === undefined || value.content === null) {
    throw new AbpError('MISSING_PARAM', `${where}.content is missing: binary data is {content, mimeType, encoding?, size?}`);
  }
  const read = await contentBytes(value.content, value.encoding, where);
  if (value.size !== undefined && value.size !== read.bytes.length) {
    throw new AbpError('INVALID_PARAMS', `${where}.size says ${value.size}, but content has ${read.bytes.length} bytes`);
  }
  return { ...read, mimeType: value.mimeType ?? value.content.type ?? '' };
}

export async function sha256(bytes) {
  const digest = await crypto.subtle.digest('SHA-256', bytes);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** A Blob as BinaryData, its content in the form asked for: blob, buffer or base64. */
export async function wrapBlob(blob, filename, as = 'blob') {
  const wrapped = { content: blob, mimeType: blob.type, size: blob.size, filename };
  if (as === 'buffer') wrapped.content = await blob.arrayBuffer();
  if (as === 'base64') {
    wrapped.content = encodeBase64(new Uint8Array(await blob.arrayBuffer()));
    wrapped.encoding = 'base64';
  }
  return wrapped;
}

/** Text as BinaryData: `size` counts UTF-8 bytes, and half of a surrogate pair becomes U+FFFD, as in UTF-8. */
export function wrapText(text, mimeType, filename) {
  const content = text.toWellFormed();
  const size = new TextEncoder().encode(content).length;
  return { content, mimeType, encoding: 'utf-8', size, filename };
}

/** A file name from a title: 'Sales, 2024' → 'sales-2024.png'. */
export function filenameFor(title, extension) {
  const stem = String(title ?? '').normalize('NFKD').replace(/[\u0300-\u036f]/g, '').toLowerCase();
  return `${stem.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '').slice(0, 60) || 'untitled'}.${extension}`;
}
