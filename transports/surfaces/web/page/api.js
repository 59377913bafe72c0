// Requests to the server. Access is the cookie that /login sets; script never sees the token again after that.
import { emit } from './events.js';

/** What the server refused, in its words. `status` is 0 when there was no answer. */
export class Problem extends Error {
  constructor(message, status = 0, code = '') {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function answerOf(method, path, options) {
  let response;
  try {
    response = await fetch(path, { method, credentials: 'same-origin', ...options });
  } catch {
    throw new Problem('the server does not answer; is `abp serve` still running?');
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => null);
  if (response.status === 401 && path !== '/login') emit('signed_out');
  throw new Problem(said?.error?.message ?? `the server answered ${response.status}`, response.status, said?.error?.code);
}

async function jsonOf(method, path, body) {
  const options = body === undefined ? {} : { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } };
  const response = await answerOf(method, path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path) => jsonOf('GET', path);
export const post = (path, body) => jsonOf('POST', path, body);
export const remove = (path) => jsonOf('DELETE', path);

/** An address with the parts quoted and the query's empty values left out. */
export function address(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  const search = new URLSearchParams(given).toString();
  return `/${parts.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`;
}

/** Bytes `start` to `end` (not included) of an artifact; never more, whatever the server sends. */
export async function slice(id, start, end) {
  const response = await answerOf('GET', address(['artifacts', id]), { headers: { Range: `bytes=${start}-${end - 1}` } });
  const bytes = new Uint8Array(await response.arrayBuffer());
  return response.status === 206 ? bytes : bytes.subarray(start, end);
}

/** Store a file as it is; resolves to the artifact's metadata. */
export async function upload(file) {
  const headers = { 'Content-Type': file.type || 'application/octet-stream' };
  const response = await answerOf('POST', address(['artifacts'], { filename: file.name }), { body: file, headers });
  return (await response.json()).artifacts[0];
}
