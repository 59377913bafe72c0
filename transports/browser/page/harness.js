// The page that embeds an app and speaks postMessage with it (PROTOCOL "Envelope"): to the agent it looks like an app.
// A function expression: agent.js calls it in the harness page; what it returns becomes part of the agent.
(side) => {
  "use strict";
  const { emit, deliver } = side;
  const REPLIES = new Map([
    ["initialize-result", "initialize"],
    ["capabilities/call-result", "capabilities/call"],
    ["capabilities/cancel-result", "capabilities/cancel"],
  ]);
  const REMEMBERED = 4096; // requests that have ended, to tell a late reply from a foreign one
  const AGAIN = 500;       // ms until an initialize that nobody answered is sent again, doubled each time

  let frame = null, origin = null, greeted = false, repeated = false;
  const waiting = new Map(); // id → {type, resolve}
  const ended = new Map();   // id → "late" | "duplicate"

  const counts = {};
  let telling = false;
  const count = (what) => {
    counts[what] = (counts[what] ?? 0) + 1;
    if (telling) return; // somebody may shout thousands of times a second
    telling = true;
    setTimeout(() => { telling = false; emit("counts", counts); }, 50);
  };

  const post = (type, payload, id, transfer = []) =>
    frame.contentWindow.postMessage({ type, ...(id === undefined ? {} : { id }), timestamp: Date.now(), payload }, origin, transfer);

  const request = (type, payload, id, transfer) => new Promise((resolve) => {
    waiting.set(id, { type, resolve });
    post(type, payload, id, transfer);
  });
  const finish = (id, payload, how) => {
    const { resolve } = waiting.get(id);
    waiting.delete(id);
    ended.set(id, how);
    if (ended.size > REMEMBERED) ended.delete(ended.keys().next().value);
    resolve(payload);
  };

  // The source says who speaks, the origin what is loaded there now. Neither can be forged.
  const receive = (event) => {
    if (frame === null || event.source !== frame.contentWindow || event.origin !== origin) return count("foreign");
    const message = event.data;
    if (typeof message !== "object" || message === null || typeof message.type !== "string") return count("malformed");
    const { type, id, payload } = message, asked = REPLIES.get(type), known = waiting.get(id);
    if (asked !== undefined) {
      if (known?.type !== asked) return count((known === undefined && ended.get(id)) || "unknown");
      const again = asked === "initialize" && repeated && payload?.error?.code === "ALREADY_INITIALIZED";
      if (again) return count("duplicate"); // to our repetition: the answer to the first one is on its way
      finish(id, payload, "duplicate");
      return count("delivered");
    }
    count("event");
    if (type === "print") emit("print", { call: [...waiting.keys()].at(-1) ?? null, id: null, title: "" });
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
      const again = (delay) => setTimeout(() => {
        if (!waiting.has(id)) return;
        repeated = true; // an app whose script was not there yet has heard nothing
        post("initialize", params, id);
        again(delay * 2);
      }, delay);
      again(AGAIN);
      const answered = await answer;
      greeted = true;
      return answered;
    },
    call: (capability, params, options) =>
      request("capabilities/call", { capability, params, options }, options.callId, buffers(params)),
    // Who cancels waits no more for the call itself.
    cancel(callId, reason) {
      if (typeof callId !== "string") return { callId, cancelled: false }; // the other form; there is one message only
      const answer = request("capabilities/cancel", { callId, reason }, crypto.randomUUID());
      if (waiting.has(callId)) finish(callId, { success: false, cancelled: true }, "late");
      return answer;
    },
    shutdown: (params) => post("shutdown", params),
  });

  return {
    // Resolves once something has loaded in the frame, be it an error page of the browser.
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
    // In CSS pixels, or as the page has it.
    resize(width, height) {
      for (const [name, value] of Object.entries({ width, height })) frame.style[name] = value === null ? "" : `${value}px`;
    },
    talkTo(target) {
      origin = target;
      frame.addEventListener("load", () => { if (greeted) emit("gone", null); });
    },
  };
}
