// Requests to the server. They carry the cookie of /login; scripts do not keep the token.
import { emit } from './events.js';

/** Error of the server, with its message. `status` is 0 without a response. */
class Problem extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

async function request(method, path, options) {
  let response;
  try {
    response = await fetch(path, { method, credentials: 'same-origin', ...options });
  } catch {
    throw new Problem('the server does not answer; is `abp serve` still running?');
  }
  if (response.ok) return response;
  if (response.status === 401 && path !== '/login') emit('signed_out');
  const answer = await response.json().catch(() => null);
  const message = answer?.error?.message ?? `the server answered ${response.status}`;
  throw new Problem(message, response.status);
}

async function jsonOf(method, path, body) {
  const options = {};
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { 'Content-Type': 'application/json' };
  }
  const response = await request(method, path, options);
  return response.status === 204 ? null : response.json();
}

export const get = (path) => jsonOf('GET', path);
export const post = (path, body) => jsonOf('POST', path, body);
export const remove = (path) => jsonOf('DELETE', path);

/** Return a path with percent-encoded parts, and a query without empty values. */
export function address(parts, query = {}) {
  const values = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  const search = new URLSearchParams(values).toString();
  return `/${parts.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`;
}

/** Return bytes `start` to `end` (exclusive) of an artifact; never more, even if the server sends the whole content. */
export async function slice(id, start, end) {
  const headers = { Range: `bytes=${start}-${end - 1}` };
  const response = await request('GET', address(['artifacts', id]), { headers });
  const bytes = new Uint8Array(await response.arrayBuffer());
  return response.status === 206 ? bytes : bytes.subarray(start, end);
}

/** Upload a file. Resolves to the metadata of the artifact. */
export async function upload(file) {
  const headers = { 'Content-Type': file.type || 'application/octet-stream' };
  const response = await request('POST', address(['artifacts'], { filename: file.name }), { body: file, headers });
  return (await response.json()).artifacts[0];
}
