// The host of a view: a page that embeds the HTML of an MCP server's tool and speaks MCP Apps with it (docs/views.md). For
// the agent the view is an app (window.abp) whose capabilities are the tools that the view registers.
// A function expression: agent.js calls it in the host's page and adds the returned methods to the agent.
(host) => {
  "use strict";
  const { natives, toJson, emit, hold } = host;
  const {
    Map, Promise, String, TextEncoder, clock, createHtmlElement, documentBody, elementAppend, elementSetAttribute,
    encoderEncode, filterList, firstKey, frameContentWindow, freeze, fromBase64, isArray, mapList, messageData, messageOrigin,
    messageSource, min, parse, postMessage, setFrameAllow, setFrameSrc, setTimeout, targetAddEventListener,
    typedArraySize,
  } = natives;
  const MAX_OPEN = 64;                // requests of the view that wait for their answer at the same time
  const MAX_METHOD = 200;             // characters of a method's name
  const MAX_TEXT = 4 * 1024 * 1024;   // characters of the parameters of one message, without the content of files
  const MAX_FILES = 64;               // files of one request; one more is passed on, for Python to refuse
  const MAX_INLINE = 64 * 1024;       // characters of a text resource that travels in its message
  const MAX_NOTES = 1000, NOTES = 200; // notifications at once, and per second; further ones are left out
  const MAX_ENDED = 4096;             // ids of ended requests, to distinguish late replies from unknown ones
  const REFUSED = -32000, TOO_LARGE = -32001;

  let frame = null, origin = null, nextId = 0, nextKey = 0;
  const pending = new Map(); // id of our request → {resolve, call}
  const ended = new Map();   // id → "late" | "duplicate"
  const open = new Map();    // key → id of a request of the view

  const counts = {};
  let countsScheduled = false;
  const count = (what) => {
    counts[what] = (counts[what] ?? 0) + 1;
    if (countsScheduled) return; // another window may send thousands of messages a second
    countsScheduled = true;
    setTimeout(() => { countsScheduled = false; emit("counts", counts); }, 50);
  };

  // The target origin: the browser drops a message if the frame holds another document by now.
  const post = (message) => postMessage(frameContentWindow(frame), { jsonrpc: "2.0", ...message }, origin);
  const refuse = (id, code, message) => post({ id, error: { code, message } });

  const request = (method, params, call) => new Promise((resolve) => {
    const id = nextId++;
    pending.set(id, { resolve, call });
    post({ id, method, params });
  });
  const finish = (id, value, how) => {
    const { resolve } = pending.get(id);
    pending.delete(id);
    ended.set(id, how);
    if (ended.size > MAX_ENDED) ended.delete(firstKey(ended));
    resolve(value);
  };

  // A view that reloads itself begins again. Its scripts may do that before the frame's load event, which ends what the
  // previous document had open: our requests and the view's up to that moment.
  let hasBegunAgain = false, endOfKeys = 0, endOfIds = 0;
  const beginAgain = () => {
    isInitialized = toolsChanged = false;
    hasBegunAgain = true;
    endOfKeys = nextKey;
    endOfIds = nextId;
    emit("reloaded", null);
  };
  const endDocument = () => {
    if (!hasBegunAgain) beginAgain();
    hasBegunAgain = false;
    open.forEach((_, key) => { if (key < endOfKeys) open.delete(key); });
    const error = { code: REFUSED, message: "the view reloaded or navigated" };
    pending.forEach((_, id) => { if (id < endOfIds) finish(id, { error }, "late"); });
  };

  const isObject = (value) => typeof value === "object" && value !== null && !isArray(value);

  // Replaces base64 in MCP content by its bytes, which the agent moves as it moves any content.
  const withBytes = (block) => {
    const decoded = (value) => {
      try { return fromBase64(value); } catch { return value; } // Python says that it is not base64
    };
    if (!isObject(block)) return block;
    if ((block.type === "image" || block.type === "audio") && typeof block.data === "string") {
      return { ...block, data: decoded(block.data) };
    }
    if (block.type === "resource" && isObject(block.resource) && typeof block.resource.blob === "string") {
      return { ...block, resource: { ...block.resource, blob: decoded(block.resource.blob) } };
    }
    return block;
  };

  // The files that a view hands out stay in this page until they are fetched; `held` says where. What a view calls
  // `held` itself is not.
  const heldFile = (item) => {
    if (!isObject(item?.resource)) return item;
    const { blob, held: _, ...resource } = item.resource;
    const { text } = resource;
    const isText = blob === undefined && typeof text === "string" && text.length > MAX_INLINE;
    if (typeof blob !== "string" && !isText) return { ...item, resource };
    try {
      const bytes = isText ? encoderEncode(new TextEncoder(), text) : fromBase64(blob);
      if (isText) {
        resource.mimeType ??= "text/plain";
        delete resource.text;
      }
      return { ...item, resource: { ...resource, held: { id: hold(bytes), size: typedArraySize(bytes) } } };
    } catch { return { ...item, resource }; } // Python says that it cannot be decoded
  };
  const heldFiles = (params) => (
    isArray(params.contents) ? { ...params, contents: mapList(filterList(params.contents, (_, index) => index <= MAX_FILES), heldFile) } : params
  );

  let notes = MAX_NOTES, notedAt = clock();
  const mayNote = () => {
    const now = clock();
    notes = min(MAX_NOTES, notes + ((now - notedAt) * NOTES) / 1000);
    notedAt = now;
    if (notes < 1) return false;
    notes -= 1;
    return true;
  };
  let isInitialized = false, toolsChanged = false;
  // Notifications that are never left out. Each is sent once, since how often it comes means nothing.
  const once = (method) => {
    if (method === "ui/notifications/initialized") {
      if (!isInitialized) emit("view", { key: null, method, params: "{}" });
      isInitialized = true;
      return true;
    }
    if (method !== "notifications/tools/list_changed") return false;
    if (!toolsChanged) setTimeout(() => { toolsChanged = false; emit("view", { key: null, method, params: "{}" }); }, 20);
    return toolsChanged = true;
  };

  const receiveMessage = ({ id, method, params }) => {
    const isRequest = id !== undefined;
    if (method.length > MAX_METHOD || (isRequest && typeof id !== "string" && typeof id !== "number")) return count("malformed");
    if (params !== undefined && !isObject(params)) return isRequest ? refuse(id, -32602, "params must be an object") : count("malformed");
    if (!isRequest && once(method)) return;
    if (method === "ui/initialize" && isRequest && isInitialized) beginAgain();
    if (!isRequest && !mayNote()) return count("left out");
    if (isRequest && open.size >= MAX_OPEN) return refuse(id, REFUSED, `more than ${MAX_OPEN} requests wait for their answer`);
    let text;
    try { text = toJson((method === "ui/download-file" ? heldFiles(params ?? {}) : params) ?? {}); } catch { text = null; }
    if (text === null || text.length > MAX_TEXT) {
      return isRequest ? refuse(id, TOO_LARGE, `more than ${MAX_TEXT} characters`) : count("malformed");
    }
    let key = null;
    if (isRequest) open.set(key = nextKey++, id);
    count("event");
    if (emit("view", { key, method, params: text })) return;
    if (!isRequest) return count("left out");
    open.delete(key);
    refuse(id, REFUSED, "too many messages");
  };

  // The source identifies the window, the origin the document in it. Neither can be forged.
  const isFromView = (event) =>
    frame !== null && messageSource(event) === frameContentWindow(frame) && messageOrigin(event) === origin;
  const receive = (event) => {
    if (!isFromView(event)) return count("foreign");
    const message = messageData(event);
    if (!isObject(message) || message.jsonrpc !== "2.0") return count("malformed");
    if (typeof message.method === "string") return receiveMessage(message);
    if (!pending.has(message.id)) return count(ended.get(message.id) ?? "unknown");
    if (!isObject(message.error) && !isObject(message.result)) return count("malformed");
    finish(message.id, { result: message.result, error: message.error }, "duplicate");
    count("delivered");
  };
  targetAddEventListener(window, "message", receive);
  // A message with what only its own origin may have, such as a handle of a file. Nothing says which request it answers.
  targetAddEventListener(window, "messageerror", (event) => {
    if (!isFromView(event)) return count("foreign");
    count("malformed");
    if (pending.size !== 1) return;
    const message = "the answer holds what another origin may not have (a file handle, a WebAssembly module); answer JSON only";
    finish(firstKey(pending), { error: { code: REFUSED, message } }, "late");
  });

  // The answer of the agent: MCP's result or its error.
  const answerOf = ({ result, error, cancelled }) => {
    if (cancelled === true && result === undefined) return { cancelled };
    if (isObject(error)) return { error: { code: error.code, message: String(error.message), data: error.data } };
    const blocks = isArray(result.content) ? mapList(result.content, withBytes) : result.content;
    return { result: result.content === undefined ? result : { ...result, content: blocks } };
  };

  window.abp = freeze({
    initialize: async () => answerOf(await request("tools/list", {})),
    listCapabilities: async () => answerOf(await request("tools/list", {})),
    call: async (capability, params, options) =>
      answerOf(await request("tools/call", { name: capability, arguments: params }, options.callId)),
    // A cancelled call ends at once, without waiting for its reply.
    cancel(callId, reason) {
      let running = null;
      pending.forEach(({ call }, id) => { if (call === callId && callId !== undefined) running ??= id; });
      if (running === null) return { callId, cancelled: false };
      post({ method: "notifications/cancelled", params: { requestId: running, reason } });
      finish(running, { cancelled: true }, "late");
      return { callId, cancelled: true };
    },
    shutdown: () => undefined,
  });

  return {
    receiver: () => origin,
    // Shows the view; `boundary` is its origin. Resolves once the frame has loaded a document.
    show(url, boundary, sandbox, allow) {
      frame = createHtmlElement("iframe");
      origin = boundary;
      elementSetAttribute(frame, "sandbox", sandbox);
      setFrameAllow(frame, allow);
      setFrameSrc(frame, url);
      return new Promise((resolve) => {
        targetAddEventListener(frame, "load", () => {
          resolve();
          targetAddEventListener(frame, "load", endDocument);
        }, { __proto__: null, once: true });
        elementAppend(documentBody(document), frame);
      });
    },
    // Answers a request of the view; an answer to none, or a second one, is dropped.
    respond(key, text) {
      if (!open.has(key)) return;
      const id = open.get(key);
      open.delete(key);
      post({ id, ...parse(text) });
    },
    // Sends notifications in order: a method, its parameters, the next method, …
    tell(...notifications) {
      for (let index = 0; index < notifications.length; index += 2) {
        post({ method: notifications[index], params: parse(notifications[index + 1]) });
      }
    },
    async ask(method, text) { return toJson(answerOf(await request(method, parse(text)))); },
  };
}
