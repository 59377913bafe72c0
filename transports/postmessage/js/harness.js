// The harness: a page that embeds an app and exchanges messages with it by postMessage (docs/protocol.md 6.5). For the
// agent it is an app (window.abp).
// A function expression: agent.js calls it in the harness page and adds the returned methods to the agent.
(host) => {
  "use strict";
  const { natives, emit, deliver } = host;
  const {
    Map, Promise, bufferByteLength, clock, createHtmlElement, documentBody, elementAppend,
    elementSetAttribute, firstKey, firstOf, frameContentWindow, freeze, getOwnPropertyDescriptor, htmlStyle, isSafeInteger,
    keys, lastKey, listForEach, listPush, messageData, messageOrigin, messageSource, min, now, portPostMessage, postMessage,
    quietly, random, sequence, setFrameAllow, setFrameSrc, setTimeout, styleSetProperty, targetAddEventListener, wait,
  } = natives;
  const REPLIES = {
    __proto__: null,
    "initialize-result": "initialize",
    "capabilities/call-result": "capabilities/call",
    "capabilities/cancel-result": "capabilities/cancel",
  };
  const MAX_ENDED = 4096; // ids of ended requests, to distinguish late replies from unknown ones
  const MAX_SETTLING = 5000; // ms for which an answer waits for what its handler left behind
  const RETRY_DELAY = 500; // ms after which an unanswered initialize is sent again, doubled each time

  let effects = 0, reported = 0; // of the app's frame (embedded.js), by their count
  let port = null;               // to embedded.js
  const settling = new Map();    // id of an answered call → called once its handler has left nothing for a later turn
  let frame = null, origin = null;
  let initialized = false, repeated = false;
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

  const post = (type, payload, id, transfer = []) => {
    const message = { type, ...(id === undefined ? {} : { id }), timestamp: now(), payload };
    postMessage(frameContentWindow(frame), message, origin, sequence(transfer));
  };

  const request = (type, payload, id, transfer) => new Promise((resolve) => {
    pending.set(id, { type, resolve });
    post(type, payload, id, transfer);
  });
  const finish = (id, payload, how) => {
    const { resolve } = pending.get(id);
    pending.delete(id);
    ended.set(id, how);
    if (ended.size > MAX_ENDED) ended.delete(firstKey(ended));
    reportEffects();
    resolve(payload);
  };
  // Before the reply, which waits for them.
  const reportEffects = () => {
    if (!isSafeInteger(effects) || effects <= reported) return;
    reported = effects;
    emit("emitted", effects);
  };
  const settle = async (id, time) => {
    const settled = new Promise((resolve) => settling.set(id, () => resolve(true)));
    const isAsked = quietly(() => { portPostMessage(port, { id, payload: time }); return true; });
    if (!isAsked || !await firstOf(settled, wait(time))) port = null; // it is gone
    settling.delete(id);
    reportEffects();
  };

  // Of any frame in the app, or another window: so each call is told once.
  let printingCall = null;
  const reportFramePrint = (call) => {
    if (call !== printingCall) emit("frameprint", { call });
    printingCall = call;
  };

  // The source identifies the window, the origin the document in it. Neither can be forged.
  const isFromApp = (event) =>
    frame !== null && messageSource(event) === frameContentWindow(frame) && messageOrigin(event) === origin;
  const receive = (event) => {
    if (messageData(event)?.type === "frameprint") return reportFramePrint(lastKey(pending) ?? lastKey(settling));
    if (!isFromApp(event)) return countMessage("foreign");

    const message = messageData(event);
    const isMessage = typeof message === "object" && message !== null && typeof message.type === "string";
    if (!isMessage) return countMessage("malformed");

    const { type, id, payload } = message;
    const requestType = REPLIES[type];
    if (requestType !== undefined) return receiveReply(requestType, id, payload);

    countMessage("event");
    if (type === "print") emit("print", { call: lastKey(pending), id: null, title: "" });
    else if (type === "turned") settling.get(id)?.();
    else if (type === "effect") {
      effects = payload;
      if (effects === 0) { // embedded.js begins, maybe in a later document of the app
        reported = 0;
        port = message.port;
      }
    }
    else if (type === "notification" || type === "progress") deliver(type)(payload);
    else if (type === "elicitation/request") ask(payload, id);
    else emit("unknown", type);
  };
  const receiveReply = (requestType, id, payload) => {
    const pendingRequest = pending.get(id);
    if (pendingRequest === undefined) return countMessage(ended.get(id) || "unknown");
    if (pendingRequest.type !== requestType) return countMessage("unknown");

    // The answer to the first initialize is on its way.
    const isToRepetition = requestType === "initialize" && repeated && payload?.error?.code === "ALREADY_INITIALIZED";
    if (isToRepetition) return countMessage("duplicate");

    finish(id, payload, "duplicate");
    countMessage("delivered");
  };
  const newId = () => `${random()}`;
  const ask = async (question, id) => post("elicitation/response", await deliver("elicitation")(question), id);
  targetAddEventListener(window, "message", receive);
  // A message with what only its own origin may have, such as a handle of a file. Nothing says which call it answers.
  targetAddEventListener(window, "messageerror", (event) => {
    if (!isFromApp(event)) return countMessage("foreign");
    countMessage("malformed");
    const id = firstKey(pending);
    if (pending.size !== 1 || pending.get(id).type !== "capabilities/call") return;
    const message = "the answer holds what another origin may not have (a file handle, a WebAssembly module); answer plain " +
      "data, buffers and Blobs only";
    finish(id, { success: false, error: { code: "OPERATION_FAILED", message, retryable: false } }, "late");
  });

  const isBuffer = (value) => quietly(() => bufferByteLength(value)) !== undefined;
  const buffers = (value, found = []) => {
    if (typeof value !== "object" || value === null) return found;
    const names = keys(value);
    if (!names.length && isBuffer(value)) listPush(found, value);
    listForEach(names, (name) => buffers(value[name], found));
    return found;
  };

  window.abp = freeze({
    async initialize(params) {
      const id = newId();
      const answer = request("initialize", params, id);

      // The app missed the first message if its script had not run yet.
      const repeatAfter = (delay) => setTimeout(() => {
        if (!pending.has(id)) return;
        repeated = true;
        post("initialize", params, id);
        repeatAfter(delay * 2);
      }, delay);
      repeatAfter(RETRY_DELAY);

      const result = await answer;
      initialized = true;
      return result;
    },
    async call(capability, params, options) {
      const { callId } = options, start = clock(), timeout = getOwnPropertyDescriptor(options, "timeout")?.value ?? 1e9;
      const answer = await request("capabilities/call", { capability, params, options }, callId, buffers(params));
      // The time of the call itself must not run out.
      const time = min(0.8 * timeout - (clock() - start), MAX_SETTLING);
      if (port && time > 0 && !answer?.cancelled) await settle(callId, time);
      return answer;
    },
    // A cancelled call ends at once, without waiting for its reply.
    cancel(callId, reason) {
      if (typeof callId !== "string") return { callId, cancelled: false }; // agent.js tries a second form; not needed here
      const answer = request("capabilities/cancel", { callId, reason }, newId());
      settling.get(callId)?.();
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
      frame = createHtmlElement("iframe");
      if (sandbox !== null) elementSetAttribute(frame, "sandbox", sandbox);
      setFrameAllow(frame, allow);
      setFrameSrc(frame, url);
      return new Promise((resolve) => {
        targetAddEventListener(frame, "load", () => resolve(), { __proto__: null, once: true });
        elementAppend(documentBody(document), frame);
      });
    },
    // Sets the frame's size in CSS pixels; null restores the page's own.
    resize(width, height) {
      const style = htmlStyle(frame);
      styleSetProperty(style, "width", width === null ? "" : `${width}px`);
      styleSetProperty(style, "height", height === null ? "" : `${height}px`);
    },
    setOrigin(target) {
      origin = target;
      targetAddEventListener(frame, "load", () => { if (initialized) emit("unloaded", null); });
    },
  };
}
