// shape: one answer per form that JavaScript content can take, with known bytes (byte i is i % 251), for clients' tests.

import { AbpError } from '../protocol/errors.js';
import { encodeBase64 } from '../lib/base64.js';

const patternBytes = (size) => Uint8Array.from({ length: size }, (_, at) => at % 251);
const binary = (content, size, more = {}) => ({ content, mimeType: 'application/octet-stream', size, ...more });
const typed = (Type) => (size) => {
  const whole = size - (size % Type.BYTES_PER_ELEMENT);
  return [new Type(patternBytes(whole).buffer), whole];
};

/** The bytes in the middle of a larger buffer, whose other bytes are 0xEE. */
function embedded(size) {
  const large = new Uint8Array(size + 24).fill(0xee);
  large.set(patternBytes(size), 8);
  return large.buffer;
}

function shared(size) {
  if (!globalThis.crossOriginIsolated) {
    throw new AbpError('NOT_SUPPORTED', 'SharedArrayBuffer needs a cross-origin isolated page: add ?isolated to its address');
  }
  const buffer = new SharedArrayBuffer(size);
  new Uint8Array(buffer).set(patternBytes(size));
  return buffer;
}

function detached(size) {
  const { buffer } = patternBytes(size);
  structuredClone(buffer, { transfer: [buffer] });
  return buffer;
}

// What `content` of a BinaryData may be: (size) → content, or [content, size] where the size had to be rounded.
const CONTENTS = {
  ArrayBuffer: (size) => patternBytes(size).buffer,
  Uint8Array: patternBytes,
  Uint8ClampedArray: typed(Uint8ClampedArray),
  Int16Array: typed(Int16Array),
  Uint32Array: typed(Uint32Array),
  Float64Array: typed(Float64Array),
  BigUint64Array: typed(BigUint64Array),
  subarray: (size) => new Uint8Array(embedded(size), 8, size),
  DataView: (size) => new DataView(embedded(size), 8, size),
  Blob: (size) => new Blob([patternBytes(size)], { type: 'application/octet-stream' }),
  File: (size) => new File([patternBytes(size)], 'pattern.bin', { type: 'application/octet-stream' }),
  SharedArrayBuffer: shared,
  detached,
  empty: () => [new ArrayBuffer(0), 0],
};

const PIXEL_SIDE = 16;

function pixels() {
  const image = new ImageData(PIXEL_SIDE, PIXEL_SIDE);
  image.data.set(patternBytes(PIXEL_SIDE * PIXEL_SIDE * 4));
  return image;
}

const LARGE = 300 * 1024;
const file = (size) => binary(patternBytes(size).buffer, size);

// Whole answers: (size) → data.
const ANSWERS = {
  ImageData: () => ({ image: pixels(), width: PIXEL_SIDE, height: PIXEL_SIDE }),
  top: (size) => binary(patternBytes(size).buffer, size, { filename: 'pattern.bin' }),
  topBuffer: (size) => patternBytes(size).buffer,
  deep: (size) => ({ one: { two: { three: { four: { five: { six: file(size), note: 'six levels down' } } } } } }),
  list: (size) => ({ files: [0, 1, 2].map((extra) => binary(patternBytes(size + extra), size + extra)) }),
  flat: (size) => ({ document: encodeBase64(patternBytes(size)), mimeType: 'application/octet-stream', size }),
  mixed: (size) => ({
    large: file(LARGE),
    small: binary(patternBytes(size), size),
    blob: binary(new Blob([patternBytes(size)]), size),
    text: binary(encodeBase64(patternBytes(size)), size, { encoding: 'base64' }),
    plain: binary('grüße, 世界', 15, { mimeType: 'text/plain', encoding: 'utf-8' }),
    nested: [{ item: binary(new DataView(embedded(size), 8, size), size) }],
  }),
  Map: (size) => ({ map: new Map([['answer', 42], ['file', file(size)]]) }),
  Set: () => ({ set: new Set([1, 'two', 3]) }),
  Date: () => ({ date: new Date(1_700_000_000_000) }),
  BigInt: () => ({ big: 2n ** 70n, small: 7n }),
  cyclic: (size) => {
    const data = { file: file(size), list: [] };
    data.self = data;
    data.list.push(data);
    return data;
  },
  nan: () => ({ values: [NaN, Infinity, -Infinity, -0] }),
  undefined: () => ({ missing: undefined, list: [undefined, 1] }),
  getter: (size) => ({
    file: file(size),
    get broken() {
      throw new Error('this getter throws');
    },
  }),
  nonAscii: (size) => ({ text: 'é 世界 𝄞 🎼', lone: 'a\ud834b', 'ключ 🎵': 'value', file: file(size) }),
};

const BARE = new Set(['top', 'topBuffer', 'flat']); // data itself is the thing

export const shapes = {
  shape: async ({ shape, size = 1024 }) => {
    const makeContent = CONTENTS[shape];
    if (makeContent) {
      const made = makeContent(size);
      const [content, exact] = Array.isArray(made) ? made : [made, size];
      return { file: binary(content, exact), shape, size: exact, note: 'metadata beside the file' };
    }
    const data = ANSWERS[shape](size);
    // Assigned, not spread: a spread would run the getter.
    return BARE.has(shape) ? data : Object.assign(data, { shape, note: 'metadata beside the file' });
  },
};
