// Runner of an adapter, a caller's script that makes an app of a page without a protocol (docs/adapters.md). A function
// expression, called as adapter(origin, file, stack, (abp) => { … the caller's script … }) before the page's first script,
// in every document of the page. The script runs only in the top document, and only at `origin`. `file` is its name,
// `stack` that of an error in the line above it.
(origin, file, stack, run) => {
  "use strict";
  if (globalThis !== globalThis.top || location.origin !== origin) return;
  const capabilities = new Map(), calls = new Map();
  const { defineProperty } = Object, NativeError = Error;
  let session = null, running = false;

  // The place of an error in the caller's script, such as " (report.js:12)", or "".
  const placesOf = (text) => [...String(text ?? "").matchAll(/^\s*(?:at\s+)?(?:async\s+)?(?:[^\n(@]*[(@])?(\S*?):(\d+):\d+\)?$/gm)];
  const above = placesOf(stack)[0], lines = run.toString().split("\n").length - 2;
  const placeOf = (error) => {
    for (const [, source, line] of above ? placesOf(error?.stack) : []) {
      const own = line - above[2];
      if (source === above[1] && own > 0 && own <= lines) return ` (${file}:${own})`;
    }
    return "";
  };
  const failure = (error) => ({ success: false, error: {
    code: typeof error?.code === "string" && error.code ? error.code : "OPERATION_FAILED",
    message: String(error?.message || error) + (typeof error?.code === "string" ? "" : placeOf(error)), retryable: error?.retryable === true,
  } });
  const refused = (code, message, retryable = false) => failure(Object.assign(new NativeError(message), { code, retryable }));
  // What the schema says of required parameters and of types; the client checks the rest.
  const { hasOwn } = Object, { isArray } = Array, { isInteger } = Number;
  const typeOf = (value) => (value === null ? "null" : isArray(value) ? "array" : isInteger(value) ? "integer" : typeof value);
  const checkParams = ({ required, properties }, params) => {
    const wrong = (code, message) => { throw Object.assign(new NativeError(message), { code }); };
    if (typeOf(params) !== "object") wrong("INVALID_TYPE", "params must be an object");
    for (const name of isArray(required) ? required : []) if (params[name] === undefined) wrong("MISSING_PARAM", `${name} is required`);
    for (const [name, value] of Object.entries(params)) {
      const type = hasOwn(properties ?? {}, name) ? properties[name]?.type : undefined;
      const types = type === undefined ? [] : [type].flat(), given = typeOf(value);
      const fits = !types.length || types.includes(given) || (given === "integer" && types.includes("number"));
      if (!fits) wrong("INVALID_TYPE", `${name} must be ${types.join(" or ")}, not ${given}`);
    }
  };
  const listed = () => [...capabilities.values()].map(({ run: _, ...capability }) => capability);
  const app = {
    protocolVersion: "0.1",
    get app() { return { id: location.host, name: document.title || location.host, version: "0" }; }, // a page has none
    async initialize() {
      session ??= String(Math.random());
      const features = { notifications: false, progress: true, elicitation: false, dynamicCapabilities: true };
      return { sessionId: session, protocolVersion: "0.1", app: app.app, capabilities: listed(), features };
    },
    async shutdown() {
      for (const controller of calls.values()) controller.abort();
      session = null;
      return { success: true };
    },
    listCapabilities: async () => listed(),
    async call(name, given, { callId = String(Math.random()), progressToken = callId } = {}) {
      if (session === null) return refused("NOT_INITIALIZED", "initialize comes first", true);
      const capability = capabilities.get(name);
      if (!capability) return refused("UNKNOWN_CAPABILITY", `the adapter has no capability ${name}`);
      const params = given ?? {};
      const controller = new AbortController(), { signal } = controller;
      calls.set(callId, controller);
      const aborted = new Promise((resolve) => signal.addEventListener("abort", () => resolve({ success: false, cancelled: true })));
      const progress = (report) => { if (!signal.aborted) globalThis.__abp_progress?.({ operationId: progressToken, ...report }); };
      const work = async () => {
        try { checkParams(capability.inputSchema, params); return { success: true, data: (await capability.run(params, { signal, progress })) ?? null }; } catch (error) { return failure(error); }
      };
      try { return await Promise.race([work(), aborted]); } finally { calls.delete(callId); }
    },
    async cancel(given) { // cancel(callId, reason), or cancel({callId, reason})
      const callId = given?.callId ?? given;
      calls.get(callId)?.abort();
      return { callId, cancelled: calls.has(callId) };
    },
  };

  // The argument `abp` of the caller's script.
  const helper = {
    // Adds a capability. schema: JSON Schema of the parameters, with title and description of the capability.
    // run(params, {signal, progress}) returns the data: plain values, buffers, Blobs, {content, mimeType, filename}.
    capability(name, schema, work) {
      if (typeof work !== "function") throw new NativeError(`abp.capability(${JSON.stringify(name)}, schema, run): run is no function`);
      if (running && capabilities.has(name)) throw new NativeError(`the name ${JSON.stringify(name)} stands twice`);
      const { description = "", title = "", ...inputSchema } = schema ?? {};
      capabilities.set(name, { name, title, description, inputSchema: { type: "object", ...inputSchema }, available: true, run: work });
      if (globalThis.abp !== app) defineProperty(globalThis, "abp", { value: app, configurable: true, writable: true, enumerable: true });
      if (session !== null) globalThis.__abp_capabilities_changed?.({ added: listed().filter((one) => one.name === name) });
    },
    // Resolves with the element of a selector as soon as it exists; throws after `timeout` ms.
    async find(selector, timeout = 10_000) {
      for (const begin = performance.now(); performance.now() - begin < timeout; await new Promise((resolve) => setTimeout(resolve, 20))) {
        const element = document.querySelector(selector);
        if (element) return element;
      }
      throw new NativeError(`the page has no ${selector} after ${timeout / 1000} s`);
    },
    csv: (rows) => rows.map((row) => row.map((cell) => (/[",\r\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell)).join(",") + "\r\n").join(""),
  };
  try { running = true; run(helper); } catch (error) {
    const reason = new NativeError(`the adapter ${file} failed${placeOf(error)}: ${error?.message ?? error}`);
    defineProperty(globalThis, "abp", { configurable: true, get() { throw reason; } });
  } finally { running = false; }
}
