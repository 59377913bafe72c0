// Base64 that neither breaks on large input nor accepts what it should not.

const CHUNK = 0x6000; // a multiple of 3, small enough for Function.prototype.apply

export function encodeBase64(bytes) {
  if (bytes.toBase64) return bytes.toBase64();
  const parts = [];
  for (let at = 0; at < bytes.length; at += CHUNK) {
    parts.push(btoa(String.fromCharCode.apply(null, bytes.subarray(at, at + CHUNK))));
  }
  return parts.join('');
}

/** Throws a SyntaxError or DOMException on anything that is not base64. */
export function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}
