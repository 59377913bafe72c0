// Runner of an adapter, a caller's script that makes an app of a page without a protocol (docs/adapters.md). A function
// expression, called as adapter(natives, late, origin, file, stack, (abp) => { … the caller's script … }) before the page's
// first script, in every document of the page; with `late` scripts of the page have run already. The script runs only in
// the top document, and only at `origin`. `file` is its name, `stack` that of an error in the line above it.
(makeNatives, late, origin, file, stack, run) => {
  "use strict";
  if (window !== window.top || location.origin !== origin) return;
  const {
    AbortController, Error, Map, Promise, Set, String, clock, controllerAbort, controllerSignal, defineProperty, documentQuerySelector,
    documentTitle, filterList, firstOf, functionToString, hasOwn, isArray, isInteger, keys, listIncludes, listForEach, listJoin,
    listPush, mapList, matches, messageOf, quietly, random, regExpExec, signalAborted, stringify, targetAddEventListener,
    textReplaceAll, textSplit, wait,
  } = makeNatives(late);
  const capabilities = new Map(), calls = new Map(), cancelled = new Set(); // ids of calls
  let session = null, running = false;

  // The place of an error in the caller's script, such as " (report.js:12)", or "".
  const placesOf = (text) => {
    const places = [];
    listForEach(textSplit(typeof text === "string" ? text : "", "\n"), (line) => {
      const place = regExpExec(/^\s*(?:at\s+)?(?:async\s+)?(?:[^\n(@]*[(@])?(\S*?):(\d+):\d+\)?$/, line);
      if (place !== null) listPush(places, { source: place[1], line: +place[2] });
    });
    return places;
  };
  const above = placesOf(stack)[0], lines = textSplit(functionToString(run), "\n").length - 2;
  const placeOf = (error) => {
    const places = above ? placesOf(quietly(() => error.stack)) : [];
    for (let index = 0; index < places.length; index += 1) {
      const line = places[index].line - above.line;
      if (places[index].source === above.source && line > 0 && line <= lines) return ` (${file}:${line})`;
    }
    return "";
  };
  const failure = (error) => {
    const code = quietly(() => error.code), isNamed = typeof code === "string";
    return { success: false, error: {
      code: isNamed && code ? code : "OPERATION_FAILED",
      message: messageOf(error) + (isNamed ? "" : placeOf(error)), retryable: quietly(() => error.retryable) === true,
    } };
  };
  const refusal = (code, message, retryable = false) => ({ code, message, retryable });
  const refused = (code, message, retryable) => failure(refusal(code, message, retryable));
  // Checks required parameters and types against the schema; the client checks the rest.
  const typeOf = (value) => (value === null ? "null" : isArray(value) ? "array" : isInteger(value) ? "integer" : typeof value);
  const checkParams = ({ required, properties }, params) => {
    if (typeOf(params) !== "object") throw refusal("INVALID_TYPE", "params must be an object");
    listForEach(isArray(required) ? required : [], (name) => {
      if (params[name] === undefined) throw refusal("MISSING_PARAM", `${name} is required`);
    });
    listForEach(keys(params), (name) => {
      const type = hasOwn(properties ?? {}, name) ? properties[name]?.type : undefined, actual = typeOf(params[name]);
      const types = isArray(type) ? type : [type];
      const fits = type === undefined || listIncludes(types, actual) || (actual === "integer" && listIncludes(types, "number"));
      if (!fits) throw refusal("INVALID_TYPE", `${name} must be ${listJoin(types, " or ")}, not ${actual}`);
    });
  };
  const listed = () => {
    const list = [];
    capabilities.forEach(({ run: _, ...capability }) => listPush(list, capability));
    return list;
  };
  const app = {
    protocolVersion: "0.1",
    adapter: file, // tells the conformance check that these functions are ours
    get app() { return { id: location.host, name: documentTitle(document) || location.host, version: "0" }; }, // a page has none
    async initialize() {
      session ??= `${random()}`;
      const features = { notifications: false, progress: true, elicitation: false, dynamicCapabilities: true };
      return { sessionId: session, protocolVersion: "0.1", app: app.app, capabilities: listed(), features };
    },
    async shutdown() {
      calls.forEach((controller) => controllerAbort(controller));
      cancelled.clear();
      session = null;
      return { success: true };
    },
    listCapabilities: async () => listed(),
    async supports(name) { return { supported: capabilities.has(name), available: capabilities.has(name) }; },
    async call(name, rawParams, { callId = `${random()}`, progressToken = callId } = {}) {
      if (session === null) return refused("NOT_INITIALIZED", "call initialize first", true);
      const capability = capabilities.get(name);
      if (!capability) return refused("UNKNOWN_CAPABILITY", `the adapter has no capability ${name}`);
      const params = rawParams ?? {};
      const controller = new AbortController(), signal = controllerSignal(controller);
      calls.set(callId, controller);
      const aborted = new Promise((resolve) => targetAddEventListener(signal, "abort", () => resolve({ success: false, cancelled: true })));
      const progress = (report) => { if (!signalAborted(signal)) window.__abp_progress?.({ operationId: progressToken, ...report }); };
      const work = async () => {
        try {
          checkParams(capability.inputSchema, params);
          return { success: true, data: (await capability.run(params, { signal, progress })) ?? null };
        } catch (error) { return failure(error); }
      };
      try { return await firstOf(work(), aborted); } finally { calls.delete(callId); }
    },
    async cancel(target) { // cancel(callId, reason), or cancel({callId, reason})
      if (session === null) return refused("NOT_INITIALIZED", "call initialize first", true);
      const callId = target?.callId ?? target, controller = calls.get(callId);
      if (controller) {
        cancelled.add(callId);
        controllerAbort(controller);
      }
      return { callId, cancelled: cancelled.has(callId) };
    },
  };

  // The argument `abp` of the caller's script.
  const helper = {
    // Adds a capability. schema: JSON Schema of the parameters, with title, description and outputSchema of the capability.
    // run(params, {signal, progress}) returns the data: plain values, buffers, Blobs, {content, mimeType, filename}.
    capability(name, schema, work) {
      if (typeof name !== "string" || !name) throw new Error(`abp.capability(${stringify(name)}, schema, run): name must be a non-empty string`);
      if (typeof work !== "function") throw new Error(`abp.capability(${stringify(name)}, schema, run): run must be a function`);
      if (running && capabilities.has(name)) throw new Error(`the capability ${stringify(name)} is declared twice`);
      const { description = "", title = "", outputSchema, ...params } = schema ?? {}, inputSchema = { type: "object", ...params };
      capabilities.set(name, { name, title, description, inputSchema, outputSchema, available: true, run: work });
      const property = { __proto__: null, value: app, configurable: true, writable: true, enumerable: true };
      if (window.abp !== app && !defineProperty(window, "abp", property)) throw new Error("the page has a window.abp that cannot be replaced");
      if (session !== null) window.__abp_capabilities_changed?.({ added: filterList(listed(), (entry) => entry.name === name) });
    },
    // Resolves with the element of a selector as soon as it exists; throws after `timeout` ms.
    async find(selector, timeout = 10_000) {
      for (const begin = clock(); clock() - begin < timeout; await wait(20)) {
        const element = documentQuerySelector(document, selector);
        if (element) return element;
      }
      throw new Error(`no element matched ${selector} within ${timeout / 1000} s`);
    },
    csv(rows) {
      const cellText = (cell) => (matches(/[",\r\n]/, String(cell)) ? `"${textReplaceAll(String(cell), '"', '""')}"` : cell);
      return listJoin(mapList(rows, (row) => listJoin(mapList(row, cellText), ",") + "\r\n"), "");
    },
  };
  try { running = true; run(helper); } catch (error) {
    const reason = new Error(`the adapter ${file} failed${placeOf(error)}: ${messageOf(error)}`);
    defineProperty(window, "abp", { __proto__: null, configurable: true, get() { throw reason; } });
  } finally { running = false; }
}
