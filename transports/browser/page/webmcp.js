// Wrapper of the WebMCP tools of one document as an app of the protocol, driven by agent.js in place of window.abp. Each
// document, the page's and every frame's, has its own wrapper for its own tools; Python routes calls to documents
// (FrameTools in agent.py).
// A function expression: agent.js adds the returned methods and `app` to the agent.
(host, makeTools, makeAnswers) => {
  "use strict";
  const { emit, warnings: warningsOf, blobOfUrl, framed, changed: tellChange } = host;
  const { apply } = Reflect, { stringify } = JSON;
  const setTimer = globalThis.setTimeout.bind(globalThis), addListener = EventTarget.prototype.addEventListener;
  const SETTLE = 100;   // ms without a change after which a list counts as complete
  const APPEAR = 1000;  // ms for a tool to appear in a page that has just loaded

  // --- the list ------------------------------------------------------------------------------------------------------
  const answers = makeAnswers(blobOfUrl);
  // JSON of a tool, or undefined if it cannot be JSON: then only this tool is left out.
  const textOf = (tool) => { try { return stringify(tool); } catch { return undefined; } };
  let listed = new Map(); // name → tool
  const refresh = async () => {
    const found = new Map();
    for (const tool of await tools.list()) if (textOf(tool) !== undefined) found.set(tool.name, tool);
    listed = found;
    return found;
  };
  const texts = () => new Map([...listed].map(([name, tool]) => [name, textOf(tool)]));

  // --- changes -------------------------------------------------------------------------------------------------------
  let initialized = framed, reported = new Map(), scheduled = false, changedAt = Date.now();
  const report = async () => {
    scheduled = false;
    await refresh();
    const now = texts(), before = reported;
    reported = now;
    if (!initialized || (now.size === before.size && [...now].every(([name, text]) => before.get(name) === text))) return;
    tellChange([...before.keys()].filter((name) => !now.has(name)));
  };
  const changed = () => {
    changedAt = Date.now();
    if (scheduled) return;
    scheduled = true;
    setTimer(report, 0);
  };
  const tools = makeTools(changed);
  const pause = (milliseconds) => new Promise((resolve) => setTimer(resolve, milliseconds));

  // --- the app -------------------------------------------------------------------------------------------------------
  const calls = new Map(); // id → AbortController
  const failed = (code, message) => ({ success: false, error: { code, message } });
  const find = async (name) => {
    for (const started = Date.now(); ; await pause(20)) {
      if (!listed.has(name)) await refresh();
      if (listed.has(name)) return listed.get(name);
      const patience = !framed && performance.now() < 10_000 ? APPEAR : 0;
      if (document.readyState === "complete" && Date.now() - started >= patience) return undefined;
    }
  };
  const app = {
    async initialize() {
      await refresh();
      reported = texts();
      initialized = true;
      const name = document.title || location.host || location.href;
      return { sessionId: `webmcp-${Math.random().toString(36).slice(2)}`, protocolVersion: "0.1", capabilities: [...listed.values()],
        app: { id: location.host, name, version: "" }, features: { dynamicCapabilities: true } };
    },
    async listCapabilities() {
      return [...(await refresh()).values()];
    },
    async call(name, params, { callId }) {
      const tool = await find(name);
      if (!tool) return failed("UNKNOWN_CAPABILITY", `the page has no tool ${name}`);
      const controller = new AbortController(), notes = [];
      const aborted = new Promise((resolve) => apply(addListener, controller.signal, ["abort", () => resolve({ success: false, cancelled: true })]));
      calls.set(callId, controller);
      let answer;
      try {
        const input = answers.toInput(params, tool.inputSchema), warn = (text) => notes.push(text);
        // Emitted before the form is sent: if the page navigates, this script is gone.
        if (tool.annotations?.autosubmit) emit("submitting", { call: callId });
        const running = tools.execute(name, input, { signal: controller.signal, warn, abp: { callId } });
        answer = await Promise.race([running.then((value) => answers.toAnswer(value, warn)), aborted]);
      } catch (error) {
        const code = typeof error?.code === "string" && error.code ? error.code : "OPERATION_FAILED";
        answer = failed(code, String(error?.message || error || "the tool threw nothing"));
        if (error?.name && error.name !== "Error") answer.error.details = { name: String(error.name) };
      } finally {
        calls.delete(callId);
      }
      if (notes.length) warningsOf.set(answer, notes);
      return answer;
    },
    async cancel(callId, reason) {
      const controller = calls.get(callId);
      controller?.abort(new DOMException(reason || "cancelled", "AbortError"));
      return { callId, cancelled: controller !== undefined };
    },
    shutdown() {
      for (const controller of calls.values()) controller.abort(new DOMException("the session ended", "AbortError"));
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
      return { tools: found.size, settled: Date.now() - changedAt >= SETTLE, webmcp: tools.hasPlatform() };
    },
    inspectTools: async () => stringify(await tools.inspect()),
    // Restores replaced functions of the page, which is driven by window.abp or is left.
    standAside: () => tools.uninstall(),
  };
}
