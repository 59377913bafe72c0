// The harness: a page that embeds an app and exchanges messages with it by postMessage (docs/protocol.md 6.5). For the
// agent it is an app (window.abp).
// A function expression: agent.js calls it in the harness page and adds the returned methods to the agent.
(host) => {
  "use strict";
  const { emit, deliver } = host;
  const REPLIES = new Map([
    ["initialize-result", "initialize"],
    ["capabilities/call-result", "capabilities/call"],
    ["capabilities/cancel-result", "capabilities/cancel"],
  ]);
  const MAX_ENDED = 4096; // ids of ended requests, to distinguish late replies from unknown ones
  const RETRY_DELAY = 500; // ms after which an unanswered initialize is sent again, doubled each time

  let effects = 0, reported = 0; // of the app's frame (embedded.js), by their count
  let frame = null, origin = null, initialized = false, repeated = false;
  const pending = new Map(); // id → {type, resolve}
  const ended = new Map();   // id → "late" | "duplicate"

  const counts = {};
  let countsScheduled = false;
  const countMessage = (what) => {
    counts[what] = (counts[what] ?? 0) + 1;
    if (countsScheduled) return; // another window may send thousands of messages a second
    countsScheduled = true;
    setTimeout(() => { countsScheduled = false; emit("counts", counts); }, 50);
  };

  const post = (type, payload, id, transfer = []) =>
    frame.contentWindow.postMessage({ type, ...(id === undefined ? {} : { id }), timestamp: Date.now(), payload }, origin, transfer);

  const request = (type, payload, id, transfer) => new Promise((resolve) => {
    pending.set(id, { type, resolve });
    post(type, payload, id, transfer);
  });
  const finish = (id, payload, how) => {
    const { resolve } = pending.get(id);
    pending.delete(id);
    ended.set(id, how);
    if (ended.size > MAX_ENDED) ended.delete(ended.keys().next().value);
    if (Number.isSafeInteger(effects) && effects > reported) {
      reported = effects;
      emit("emitted", effects); // before the reply, which waits for them
    }
    resolve(payload);
  };

  // The source identifies the window, the origin the document in it. Neither can be forged.
  const receive = (event) => {
    if (frame === null || event.source !== frame.contentWindow || event.origin !== origin) return countMessage("foreign");
    const message = event.data;
    if (typeof message !== "object" || message === null || typeof message.type !== "string") return countMessage("malformed");
    const { type, id, payload } = message, requestType = REPLIES.get(type), pendingRequest = pending.get(id);
    if (requestType !== undefined) {
      if (pendingRequest?.type !== requestType) return countMessage((pendingRequest === undefined && ended.get(id)) || "unknown");
      const toRepetition = requestType === "initialize" && repeated && payload?.error?.code === "ALREADY_INITIALIZED";
      if (toRepetition) return countMessage("duplicate"); // the answer to the first initialize is on its way
      finish(id, payload, "duplicate");
      return countMessage("delivered");
    }
    countMessage("event");
    if (type === "print") emit("print", { call: [...pending.keys()].at(-1) ?? null, id: null, title: "" });
    else if (type === "effect") effects = payload;
    else if (type === "notification" || type === "progress") deliver(type)(payload);
    else if (type === "elicitation/request") deliver("elicitation")(payload).then((answer) => post("elicitation/response", answer, id));
    else emit("unknown", type);
  };
  addEventListener("message", receive);

  const buffers = (value, found = []) => {
    if (value instanceof ArrayBuffer) found.push(value);
    else if (typeof value === "object" && value !== null) for (const member of Object.values(value)) buffers(member, found);
    return found;
  };

  globalThis.abp = Object.freeze({
    async initialize(params) {
      const id = crypto.randomUUID(), answer = request("initialize", params, id);
      const repeat = (delay) => setTimeout(() => {
        if (!pending.has(id)) return;
        repeated = true; // the app missed the first one if its script had not run yet
        post("initialize", params, id);
        repeat(delay * 2);
      }, delay);
      repeat(RETRY_DELAY);
      const answered = await answer;
      initialized = true;
      return answered;
    },
    call: (capability, params, options) =>
      request("capabilities/call", { capability, params, options }, options.callId, buffers(params)),
    // A cancelled call ends at once, without waiting for its reply.
    cancel(callId, reason) {
      if (typeof callId !== "string") return { callId, cancelled: false }; // agent.js tries a second form; not needed here
      const answer = request("capabilities/cancel", { callId, reason }, crypto.randomUUID());
      if (pending.has(callId)) finish(callId, { success: false, cancelled: true }, "late");
      return answer;
    },
    shutdown: (params) => post("shutdown", params),
  });

  return {
    // Target origin of messages: the browser drops a message if the frame's document has another origin.
    receiver: () => origin,
    // Resolves once the frame has loaded a document, which may be an error page of the browser.
    embed(url, sandbox, allow) {
      frame = document.createElement("iframe");
      if (sandbox !== null) frame.setAttribute("sandbox", sandbox);
      frame.allow = allow;
      frame.src = url;
      return new Promise((resolve) => {
        frame.addEventListener("load", () => resolve(), { once: true });
        document.body.append(frame);
      });
    },
    // Sets the frame's size in CSS pixels; null restores the page's own.
    resize(width, height) {
      for (const [name, value] of Object.entries({ width, height })) frame.style[name] = value === null ? "" : `${value}px`;
    },
    setOrigin(target) {
      origin = target;
      frame.addEventListener("load", () => { if (initialized) emit("unloaded", null); });
    },
  };
}
