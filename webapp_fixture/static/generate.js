// Deterministic bytes, the same as webapp_fixture/generate.py makes: see there for the algorithm.

export const BLOCK_SIZE = 1 << 20;
const patterns = new Map();

function pattern(seed) {
  let bytes = patterns.get(seed);
  if (!bytes) {
    const view = new DataView(new ArrayBuffer(BLOCK_SIZE));
    let state = (seed ^ 0x9e3779b9) || 1;
    for (let at = 0; at < BLOCK_SIZE; at += 4) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      view.setInt32(at, state, true);
    }
    bytes = new Uint8Array(view.buffer);
    if (patterns.size >= 4) patterns.clear();
    patterns.set(seed, bytes);
  }
  return bytes;
}

/** The index-th megabyte (from 0) of every file made from seed, cut to `size`. */
export function block(index, seed = 0, size = BLOCK_SIZE) {
  const bytes = pattern(seed).slice();
  new DataView(bytes.buffer).setBigUint64(0, BigInt(index), true);
  return size < BLOCK_SIZE ? bytes.slice(0, size) : bytes;
}

/** The file of that size, in pieces of at most 1 MB. */
export function* generate(size, seed = 0) {
  for (let index = 0, left = size; left > 0; index += 1, left -= BLOCK_SIZE) {
    yield block(index, seed, Math.min(left, BLOCK_SIZE));
  }
}

/** The file of that size in one Uint8Array. */
export function generateBytes(size, seed = 0) {
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  const whole = pattern(seed);
  let at = 0;
  for (; at + BLOCK_SIZE <= size; at += BLOCK_SIZE) {
    bytes.set(whole, at); // twice as fast as copying the pieces of `generate`
    view.setBigUint64(at, BigInt(at / BLOCK_SIZE), true);
  }
  if (at < size) bytes.set(block(at / BLOCK_SIZE, seed, size - at), at);
  return bytes;
}

/** The file of that size as a Blob; its bytes are handed to the browser in parts, never held here all at once. */
export function generateBlob(size, seed = 0, type = 'application/octet-stream') {
  const groups = [];
  let group = [];
  for (const piece of generate(size, seed)) {
    group.push(piece);
    if (group.length === 16) {
      groups.push(new Blob(group));
      group = [];
    }
  }
  return new Blob([...groups, ...group], { type });
}
