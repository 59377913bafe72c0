// abp-webmcp.js: offers your app's window.abp as WebMCP tools, so that a browser's own agent can use it too.
//
// Include it as a classic script anywhere in your app:
//
//   <script src="/abp-webmcp.js" data-only="export.* app.info"></script>
//
// data-only: which capabilities become tools, separated by spaces, with * for any characters; without it all do. Your app
// needs no change. In a browser without WebMCP (document.modelContext) the script does nothing.
//
// Buffers and Blobs in an answer reach a reader that takes them as they are. A platform that makes JSON of an answer gets
// {fileName, mimeType, size, dataUrl} instead, or a blobUrl above 1 MB, which the reader should revoke.

(() => {
  'use strict';
  const context = document.modelContext ?? navigator.modelContext;
  if (typeof context?.registerTool !== 'function') return;
  const GRACE = 10_000; // ms that window.abp may take to appear
  const INLINE = 1_000_000; // bytes of a file that travel as a data: URL
  const only = (document.currentScript?.dataset.only ?? '*').split(/\s+/).filter(Boolean);
  const patterns = only.map((pattern) => new RegExp(`^${pattern.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '.*')}$`));
  const warn = console.warn.bind(console, 'abp-webmcp:');
  const { defineProperty } = Object;

  // --- answers as JSON, for platforms that make text of them --------------------------------------------------------

  const isBytes = (value) => value instanceof ArrayBuffer || ArrayBuffer.isView(value);
  const isFile = (value) => isBytes(value) || value instanceof Blob;

  function asFile(content, described = {}) {
    const size = content.size ?? content.byteLength;
    const mimeType = described.mimeType || content.type || 'application/octet-stream';
    const file = { fileName: described.filename ?? content.name ?? 'file', mimeType, size };
    if (content instanceof Blob || size > INLINE) return { ...file, blobUrl: URL.createObjectURL(new Blob([content], { type: mimeType })) };
    const bytes = isBytes(content) && ArrayBuffer.isView(content)
      ? new Uint8Array(content.buffer, content.byteOffset, content.byteLength) : new Uint8Array(content);
    let binary = '';
    for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    return { ...file, dataUrl: `data:${mimeType};base64,${btoa(binary)}` };
  }

  function asJson(value) {
    if (isFile(value)) return asFile(value);
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(asJson);
    if (isFile(value.content)) {
      const { content, mimeType, filename, size: _, ...rest } = value;
      return { ...asJson(rest), ...asFile(content, { mimeType, filename }) };
    }
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, asJson(inner)]));
  }

  const holdsFile = (value) =>
    typeof value === 'object' && value !== null && (isFile(value) || Object.values(value).some(holdsFile));

  /** The data itself, with a toJSON that nobody sees but who makes JSON of it. */
  function result(data) {
    if (!holdsFile(data)) return data;
    return Object.isExtensible(data) ? defineProperty(data, 'toJSON', { value: () => asJson(data), configurable: true }) : data;
  }

  // --- calls --------------------------------------------------------------------------------------------------------

  let session = null; // one initialize for all
  const initialize = (abp) => (session ??= (async () => {
    const answer = await abp.initialize({ agent: { name: 'abp-webmcp', version: '1' }, protocolVersion: '0.1', features: {} });
    if (answer?.success === false && answer.error?.code !== 'ALREADY_INITIALIZED') throw new Error(answer.error?.message);
  })().catch((error) => {
    if (error?.code !== 'ALREADY_INITIALIZED') { session = null; throw error; }
  }));

  function refusal(answer) {
    const error = typeof answer.error === 'object' && answer.error !== null ? answer.error : { code: 'CANCELLED', message: 'the call was cancelled' };
    const text = `${error.message ?? 'the call failed'} [${error.code ?? 'OPERATION_FAILED'}]`;
    return { isError: true, ...(answer.cancelled ? { cancelled: true } : {}), error, content: [{ type: 'text', text }] };
  }

  async function call(abp, name, input, extra) {
    const { signal } = extra ?? {}, given = extra?.abp ?? {};
    const callId = given.callId ?? crypto.randomUUID();
    const cancel = () => Promise.resolve(abp.cancel?.(callId, signal.reason?.message ?? 'cancelled')).catch(() => {});
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      for (let again = true; ; again = false) {
        await initialize(abp);
        const answer = await abp.call(name, input ?? {}, { progressToken: callId, ...given, callId });
        if (again && answer?.error?.code === 'NOT_INITIALIZED') { session = null; continue; }
        if (answer?.success === true) return result(answer.data);
        return answer?.success === false ? refusal(answer) : answer;
      }
    } finally { signal?.removeEventListener('abort', cancel); }
  }

  // --- tools: one for each capability that is there -----------------------------------------------------------------

  const registered = new Map(); // name → {text, controller}
  async function refresh(abp) {
    await initialize(abp);
    const answer = await abp.listCapabilities?.();
    const list = (Array.isArray(answer) ? answer : answer?.data ?? []).filter(({ name, available }) =>
      available !== false && patterns.some((pattern) => pattern.test(name)));
    const texts = new Map(list.map((one) => [one.name, JSON.stringify(one)]));
    for (const [name, { text, controller }] of registered) {
      if (texts.get(name) === text) continue;
      registered.delete(name);
      controller.abort();
    }
    for (const { name, title, description, inputSchema, annotations } of list) {
      if (registered.has(name)) continue;
      const controller = new AbortController();
      registered.set(name, { text: texts.get(name), controller });
      const tool = {
        name, title: title ?? name, description: description || name, inputSchema: inputSchema ?? { type: 'object' },
        execute: (input, extra) => call(abp, name, input, extra),
        ...(annotations ? { annotations } : {}),
      };
      Promise.resolve(context.registerTool(tool, { signal: controller.signal }))
        .catch((error) => warn(`${name} is no tool:`, error.message));
    }
  }

  async function start() {
    for (const begin = performance.now(); !window.abp?.call; await new Promise((resolve) => setTimeout(resolve, 20))) {
      if (performance.now() - begin > GRACE) return warn(`window.abp did not appear within ${GRACE / 1000} s`);
    }
    const { abp } = window, again = () => refresh(abp).catch((error) => warn('the list of capabilities:', error.message));
    const before = window.__abp_capabilities_changed;
    window.__abp_capabilities_changed = (change) => {
      again();
      return before?.(change);
    };
    return again();
  }
  start();
})();
