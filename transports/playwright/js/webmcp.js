// Wrapper of the WebMCP tools of one document as an app of the protocol, driven by agent.js in place of window.abp. Each
// document, the page's and every frame's, has its own wrapper for its own tools; Python routes calls to documents
// (FrameTools in agent.py).
// A function expression: agent.js adds the returned methods and `app` to the agent.
(host, makeTools, makeAnswers) => {
  "use strict";
  const { natives, toJson, emit, addWarnings, blobOfUrl, framed, changed: tellChange } = host;
  const {
    AbortController, DOMException, Map, Promise, clock, controllerAbort, controllerSignal, documentReadyState, documentTitle,
    firstOf, listForEach, listPush, messageOf, numberToString, quietly, random, setTimeout,
    targetAddEventListener, textSlice, textToWellFormed, valuesOf, wait,
  } = natives;
  const SETTLE = 100;   // ms without a change after which a list counts as complete
  const UNSETTLED = 2000; // ms after the load until which a list that changes is waited for: some pages change it without end
  const APPEAR = 1000;  // ms for a tool to appear in a page that has just loaded

  const loadedAt = clock();
  let completeAt; // when the loaded page was first seen with tools
  // --- the list ------------------------------------------------------------------------------------------------------
  const answers = makeAnswers(natives, toJson, blobOfUrl);
  // JSON of a tool, or undefined if it cannot be JSON: then only this tool is left out.
  const textOf = (tool) => quietly(() => toJson(tool));
  let listed = new Map(); // name → tool
  const refresh = async () => {
    const found = new Map();
    listForEach(await tools.list(), (tool) => { if (textOf(tool) !== undefined) found.set(tool.name, tool); });
    listed = found;
    return found;
  };
  const texts = () => {
    const byName = new Map(); // name → JSON
    listed.forEach((tool, name) => byName.set(name, textOf(tool)));
    return byName;
  };

  // --- changes -------------------------------------------------------------------------------------------------------
  let initialized = framed, reported = new Map(), scheduled = false, changedAt = clock();
  const report = async () => {
    scheduled = false;
    await refresh();
    const removed = [];
    let changes = 0;
    listed.forEach((tool, name) => { changes += reported.get(name) !== textOf(tool); });
    reported.forEach((_, name) => { if (!listed.has(name)) listPush(removed, name); });
    reported = texts();
    if (initialized && changes + removed.length) tellChange(removed);
  };
  const changed = () => {
    changedAt = clock();
    if (scheduled) return;
    scheduled = true;
    setTimeout(report, 0);
  };
  const tools = makeTools(natives, toJson, changed);

  // --- the app -------------------------------------------------------------------------------------------------------
  const calls = new Map(); // id → AbortController
  const failed = (code, message) => ({ success: false, error: { code, message } });
  const find = async (name) => {
    for (const started = clock(); ; await wait(20)) {
      if (!listed.has(name)) await refresh();
      if (listed.has(name)) return listed.get(name);
      const patience = !framed && clock() - loadedAt < 10_000 ? APPEAR : 0;
      if (documentReadyState(document) === "complete" && clock() - started >= patience) return undefined;
    }
  };
  const app = {
    async initialize() {
      await refresh();
      reported = texts();
      initialized = true;
      const name = textToWellFormed(documentTitle(document)) || location.host || location.href;
      return { sessionId: `webmcp-${textSlice(numberToString(random(), 36), 2)}`, protocolVersion: "0.1", capabilities: valuesOf(listed),
        app: { id: location.host, name, version: "" }, features: { dynamicCapabilities: true } };
    },
    async listCapabilities() {
      return valuesOf(await refresh());
    },
    async call(name, params, { callId }) {
      const tool = await find(name);
      if (!tool) return failed("UNKNOWN_CAPABILITY", `the page has no tool ${name}`);
      const controller = new AbortController(), signal = controllerSignal(controller), notes = [];
      const aborted = new Promise((resolve) => targetAddEventListener(signal, "abort", () => resolve({ success: false, cancelled: true })));
      calls.set(callId, controller);
      let answer;
      try {
        const input = answers.toInput(params, tool.inputSchema), warn = (text) => listPush(notes, text);
        // Emitted before the form is sent: if the page navigates, this script is gone.
        if (tool.annotations?.autosubmit) emit("submitting", { call: callId });
        const work = async () => await answers.toAnswer(await tools.execute(name, input, { signal, warn, abp: { callId } }), warn);
        answer = await firstOf(work(), aborted);
      } catch (error) {
        const code = quietly(() => error.code), kind = quietly(() => error.name);
        const message = error === undefined || error === null || error === "" ? "the tool threw nothing" : messageOf(error);
        answer = failed(typeof code === "string" && code ? code : "OPERATION_FAILED", message);
        if (typeof kind === "string" && kind && kind !== "Error") answer.error.details = { name: kind };
      } finally {
        calls.delete(callId);
      }
      if (notes.length) addWarnings(answer, notes);
      return answer;
    },
    async cancel(callId, reason) {
      const controller = calls.get(callId);
      if (controller) controllerAbort(controller, new DOMException(reason || "cancelled", "AbortError"));
      return { callId, cancelled: controller !== undefined };
    },
    shutdown() {
      listForEach(valuesOf(calls), (controller) => controllerAbort(controller, new DOMException("the session ended", "AbortError")));
      initialized = framed;
      return { success: true };
    },
  };

  return {
    __proto__: null,
    app,
    // Returns the number of tools, whether the list has settled, and whether the browser has WebMCP at all.
    async seeTools() {
      const found = await refresh();
      if (found.size && documentReadyState(document) === "complete") completeAt ??= clock();
      const settled = clock() - changedAt >= SETTLE || clock() - completeAt >= UNSETTLED;
      return { tools: found.size, settled, webmcp: tools.hasPlatform() };
    },
    inspectTools: async () => toJson(await tools.inspect()),
    // Restores replaced functions of the page, which is driven by window.abp or is left.
    standAside: () => tools.uninstall(),
  };
}
