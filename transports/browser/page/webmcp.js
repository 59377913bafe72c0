// Makes an app of the protocol out of the WebMCP tools of a page and its frames: what agent.js drives in place of window.abp.
// A function expression; what it returns becomes part of the agent, `app` among it.
(host, makeTools, makeAnswers) => {
  "use strict";
  const { emit, deliver, hold, warnings: warningsOf, key, blobOfUrl, admit } = host;
  // A port leads into a frame of another origin, and the key lets a window offer tools as one. So both pass only through
  // functions saved before the app's first script, and a document is known to everybody else by an object without power.
  const { apply } = Reflect, { stringify } = JSON, { isArray } = Array;
  const getter = (owner, name) => Object.getOwnPropertyDescriptor(owner.prototype, name).get;
  const dataOf = getter(MessageEvent, "data"), portsOf = getter(MessageEvent, "ports"), originOf = getter(MessageEvent, "origin");
  const { postMessage, start } = MessagePort.prototype, { stopImmediatePropagation } = Event.prototype;
  const setTimer = globalThis.setTimeout.bind(globalThis), addListener = EventTarget.prototype.addEventListener;
  const SETTLE = 100;   // ms without a change after which a list counts as whole
  const APPEAR = 1000;  // ms that a tool may take to appear in a page that has just loaded

  // --- documents: each has its own tools, and a call goes to the document that the tool was listed for ---------------
  const answers = makeAnswers(blobOfUrl);
  let send;
  class FrameDocument {
    #port;
    tools = [];
    pending = new Map();
    constructor(port, label, url, origin) { this.#port = port; this.label = label; this.url = url; this.origin = origin; }
    static { send = (frame, message) => apply(postMessage, frame.#port, [message]); }
  }
  const top = { label: "top", tools: [], pending: new Map() };
  const documents = new Set([top]);
  const gone = (name) => ({ success: false, error: { code: "OUTCOME_UNKNOWN", retryable: false,
    message: `the frame of ${name} navigated or went away during the call: whether it was done is unknown` } });
  const remoteFailure = ({ threw, name, code }) => Object.assign(new Error(threw), { name, code });

  // What a tool of a frame does beside answering.
  const tellEffect = (frame, kind, { call: id, blob, picker, multiple, directory }) => {
    const call = frame.pending.has(id) ? id : null;
    if (kind === "download") emit(kind, { call });
    else if (kind === "clipboard" && blob instanceof Blob) emit(kind, { call, type: blob.type, size: blob.size, id: hold(blob) });
    else if (kind === "filechooser") {
      emit(kind, { call, ...(picker ? { picker: String(picker) } : { multiple: Boolean(multiple), directory: Boolean(directory) }) });
    }
  };
  const connectFrame = (port, name, url, origin) => {
    const frame = new FrameDocument(port, /^[\w.-]{1,40}$/.test(name) ? name : "frame", url, origin);
    const leave = () => {
      if (!documents.delete(frame)) return;
      for (const { tool, resolve } of frame.pending.values()) resolve(gone(tool));
      assigned.delete(frame);
      changed();
    };
    const hear = (data) => {
      if (data?.gone) leave();
      else if (data?.effect) tellEffect(frame, data.effect, data.payload ?? {});
      else if (isArray(data?.tools)) {
        frame.tools = data.tools.filter((tool) => typeof tool?.name === "string");
        changed();
      } else {
        const call = frame.pending.get(data?.id), { warnings, answer } = data ?? {};
        frame.pending.delete(data?.id);
        if (isArray(warnings)) for (const warning of warnings) call?.warn(String(warning));
        if (typeof answer?.threw === "string") call?.reject(remoteFailure(answer));
        else call?.resolve(answer);
      }
    };
    apply(addListener, port, ["message", (event) => hear(apply(dataOf, event, []))]);
    apply(addListener, port, ["close", leave]);
    apply(start, port, []);
    documents.add(frame);
  };
  const runInFrame = (frame, tool, input, { signal, warn, abp }) => new Promise((resolve, reject) => {
    const id = abp.callId, abort = () => send(frame, { cancel: id, reason: signal.reason });
    frame.pending.set(id, { tool, resolve, reject, warn });
    if (signal.aborted) abort();
    else apply(addListener, signal, ["abort", abort]);
    send(frame, { id, name: tool, input, abp });
  });
  const run = async (owner, name, input, call) => (owner === top
    ? answers.toAnswer(await tools.execute(name, input, call), call.warn)
    : runInFrame(owner, name, input, call));
  // The first listener of the page: no script of the app sees the key.
  const receive = (event) => {
    const data = apply(dataOf, event, []);
    if (!isArray(data) || data[0] !== key) return;
    apply(stopImmediatePropagation, event, []);
    connectFrame(apply(portsOf, event, [])[0], String(data[1]), String(data[2]), apply(originOf, event, []));
  };
  globalThis.addEventListener("message", receive, true);

  // --- names: a tool keeps its own, unless a tool of another document has it -----------------------------------------
  const assigned = new Map(); // document → Map of its tool's name → the capability's name, for the document's lifetime
  const nameFor = (owner, name) => {
    if (!assigned.has(owner)) assigned.set(owner, new Map());
    const own = assigned.get(owner);
    if (!own.has(name)) {
      const taken = new Set([...assigned.values()].flatMap((names) => [...names.values()]));
      let chosen = name;
      for (let count = 1; taken.has(chosen); count += 1) chosen = `${name}@${owner.label}${count > 1 ? count : ""}`;
      own.set(name, chosen);
    }
    return own.get(name);
  };
  let capabilities = new Map(); // name → {owner, tool}
  const refresh = async () => {
    top.tools = await tools.list();
    const found = new Map();
    for (const owner of documents) for (const tool of owner.tools) found.set(nameFor(owner, tool.name), { owner, tool });
    capabilities = found;
    return found;
  };
  const listed = () => [...capabilities].map(([name, { owner, tool }]) =>
    ({ ...tool, name, ...(owner.url ? { frame: owner.url } : {}) }));

  // --- changes -------------------------------------------------------------------------------------------------------
  let initialized = false, reported = new Map(), scheduled = false, changedAt = Date.now();
  const texts = () => new Map(listed().map((one) => [one.name, stringify(one)]));
  const report = async () => {
    scheduled = false;
    await refresh();
    const now = texts(), before = reported;
    reported = now;
    if (!initialized) return;
    const change = {
      added: listed().filter(({ name }) => !before.has(name)),
      removed: [...before.keys()].filter((name) => !now.has(name)),
      changed: listed().filter(({ name }) => before.has(name) && before.get(name) !== now.get(name)),
    };
    if (change.added.length || change.removed.length || change.changed.length) deliver("capabilities", "tools")(change);
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
      if (!capabilities.has(name)) await refresh();
      if (capabilities.has(name)) return capabilities.get(name);
      if (document.readyState === "complete" && Date.now() - started >= (performance.now() < 10_000 ? APPEAR : 0)) return undefined;
    }
  };
  const app = {
    async initialize() {
      await refresh();
      reported = texts();
      initialized = true;
      const name = document.title || location.host || location.href;
      return { sessionId: `webmcp-${Math.random().toString(36).slice(2)}`, protocolVersion: "0.1", capabilities: listed(),
        app: { id: location.host, name, version: "" }, features: { dynamicCapabilities: true } };
    },
    async listCapabilities() {
      await refresh();
      return listed();
    },
    // `origins` are those that the call may go to, if not to all; the page's own has been compared.
    async call(name, params, { callId }, origins) {
      const found = await find(name);
      if (!found) return failed("UNKNOWN_CAPABILITY", `the page has no tool ${name}`);
      if (found.owner !== top) admit(origins, found.owner.origin);
      const { owner, tool } = found, controller = new AbortController(), notes = [];
      const aborted = new Promise((resolve) => apply(addListener, controller.signal, ["abort", () => resolve({ success: false, cancelled: true })]));
      calls.set(callId, controller);
      let answer;
      try {
        const input = answers.toInput(params, tool.inputSchema);
        const call = { signal: controller.signal, warn: (text) => notes.push(text), abp: { callId } };
        // Told first: if the page navigates now, nobody is left to say it.
        if (tool.annotations?.autosubmit) emit("submitting", { call: callId });
        answer = await Promise.race([run(owner, tool.name, input, call), aborted]);
      } catch (error) {
        const code = typeof error?.code === "string" && error.code ? error.code : "OPERATION_FAILED";
        answer = failed(code, String(error?.message || error || "the tool threw nothing"));
        if (error?.name && error.name !== "Error") answer.error.details = { name: String(error.name) };
      } finally {
        calls.delete(callId);
        owner.pending.delete(callId);
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
      initialized = false;
      return { success: true };
    },
  };

  return {
    __proto__: null,
    app,
    // How many tools the page has, once no more have come for a moment, and whether the browser has WebMCP at all.
    async seeTools() {
      const found = await refresh();
      return { tools: found.size, settled: Date.now() - changedAt >= SETTLE, webmcp: tools.hasPlatform() };
    },
    inspectTools: async () => stringify(await tools.inspect()),
    // Undoes what replaced functions of the page: it is driven by window.abp.
    standAside: () => tools.uninstall(),
    forgetTools() {
      globalThis.removeEventListener("message", receive, true);
      tools.uninstall();
    },
  };
}
