// The agent in a page: runs before the app's first script in every document and exposes the page functions of the
// protocol. It returns the agent object, which the channel passes to Python past the page: no script of the app may ever
// hold it. So every function here is strict (a sloppy function exposes its `this` to its callees as `caller`), and the
// agent is never an argument.
// A function expression, called as agent({binding, inline, longest, protocol?}, codec, effects, harness?, tools?, answers?),
// where the last two are arguments of the harness. With `protocol` "webmcp" or "auto", each frame gets an agent of its own
// for its own tools, separate from the page's; otherwise the function returns undefined in a frame.
(config, makeCodec, makeEffects, makeHarness, makeTools, makeAnswers) => {
  "use strict";
  // The raw binding is removed before any script of the app can see it.
  const send = globalThis[config.binding];
  delete globalThis[config.binding];
  const framed = globalThis !== globalThis.top, asksForTools = config.protocol === "webmcp" || config.protocol === "auto";
  if ((framed && !asksForTools) || typeof send !== "function") return undefined;

  // Native functions are saved now, so that an app that replaces them later does not break the agent.
  const bufferTag = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get;
  const sharedTag = globalThis.SharedArrayBuffer &&
    Object.getOwnPropertyDescriptor(SharedArrayBuffer.prototype, "byteLength").get;
  const blobTag = Object.getOwnPropertyDescriptor(Blob.prototype, "size").get;
  const hasGetter = (getter) => (value) => {
    if (!getter || typeof value !== "object" || value === null) return false;
    try { Reflect.apply(getter, value, []); return true; } catch { return false; }
  };
  const encode = Uint8Array.prototype.toBase64, decode = Uint8Array.fromBase64;
  const blobSlice = Blob.prototype.slice, blobBytes = Blob.prototype.arrayBuffer;
  const createURL = URL.createObjectURL.bind(URL), revokeURL = URL.revokeObjectURL.bind(URL);
  const createElement = Document.prototype.createElement, clickOn = HTMLElement.prototype.click;
  const setAttribute = Element.prototype.setAttribute;
  const fetch = globalThis.fetch.bind(globalThis);
  const setTimer = globalThis.setTimeout.bind(globalThis);
  const NativeBlob = Blob;
  const codec = makeCodec({
    stringify: JSON.stringify, rawJSON: JSON.rawJSON, isView: ArrayBuffer.isView,
    isBuffer: hasGetter(bufferTag), isShared: hasGetter(sharedTag), isBlob: hasGetter(blobTag),
    toBase64: (view) => Reflect.apply(encode, view, []), fromBase64: (text) => Reflect.apply(decode, Uint8Array, [text]),
  });
  const { parse, stringify } = JSON, { min } = Math;
  // The origin of the environment: unlike location.origin it is "null" in a sandbox. No script can change location.
  const givenOrigin = globalThis.origin;
  const clock = performance.now.bind(performance);

  // --- rate limit of events, so that no document holds up the others ------------------------------------------------
  const RATE = framed ? 100 : 1000;      // events per second; further ones are sent late
  const MAX_LATE = 5 * RATE;             // late events that wait; further ones are left out
  const MAX_LEFT_OUT = 50 * RATE;        // events left out; after that nothing more is sent
  const MAX_LATE_TEXT = 16 * 1024 * 1024; // characters
  const late = { __proto__: null };      // number → text
  let first = 0, next = 0, lateText = 0, leftOut = 0, allowance = RATE, allowedAt = clock();
  const allowed = () => {
    const now = clock();
    allowance = min(RATE, allowance + ((now - allowedAt) * RATE) / 1000);
    allowedAt = now;
    return allowance >= 1;
  };
  const sendLate = () => {
    while (first < next && allowed()) {
      const text = late[first];
      delete late[first];
      first += 1;
      lateText -= text.length;
      allowance -= 1;
      send(text);
    }
    if (first < next) setTimer(sendLate, 50);
  };
  // Returns whether the event is sent, now or a little later.
  const emit = (kind, payload) => {
    if (leftOut > MAX_LEFT_OUT) return false;
    if (first === next && allowed()) {
      allowance -= 1;
      send(codec.pack([kind, payload]).json);
      return true;
    }
    const text = next - first < MAX_LATE ? codec.pack([kind, payload]).json : undefined;
    if (text === undefined || lateText + text.length > MAX_LATE_TEXT) {
      leftOut += 1;
      if (leftOut === 1 || leftOut > MAX_LEFT_OUT) send(stringify(["flood", { ended: leftOut > MAX_LEFT_OUT }]));
      return false;
    }
    if (first === next) setTimer(sendLate, 50);
    late[next] = text;
    next += 1;
    lateText += text.length;
    return true;
  };

  const APP_LEAD = 300; // ms after the load in which window.abp is preferred to the tools of a page
  let uninstalled = false; // the app may keep references to our functions
  const undo = []; // steps that restore a page that stays open without us
  const replace = (target, name, value) => {
    const before = Object.getOwnPropertyDescriptor(target, name);
    target[name] = value;
    undo.push(() => {
      if (target[name] !== value) return;
      delete target[name];
      if (before) Object.defineProperty(target, name, before);
    });
  };

  // --- events: page functions of the protocol, and the app's own callbacks; each event is delivered once -----------
  const lastEvents = new Map(); // kind → the last event, and its way: page function or callback
  // Returns the same event if it came just before over the other way: some apps use both ways for one event.
  const duplicateOf = (kind, way, payload) => {
    const text = codec.pack(payload).json, now = Date.now(), before = lastEvents.get(kind);
    if (before && before.way !== way && before.text === text && now - before.at < 100) {
      lastEvents.delete(kind);
      return before;
    }
    lastEvents.set(kind, { way, text, at: now, reply: undefined });
    return undefined;
  };
  const elicitations = new Map(); // id → resolve of an elicitation that waits for its answer
  const DECLINED = { success: false, cancelled: true };
  const elicit = (way) => (request) => {
    if (uninstalled) return Promise.resolve(DECLINED);
    const same = duplicateOf("elicitation", way, request);
    if (same) return same.reply;
    const id = crypto.randomUUID ? crypto.randomUUID() : String(Math.random());
    const reply = new Promise((resolve) => elicitations.set(id, resolve));
    lastEvents.get("elicitation").reply = reply;
    if (!emit("elicitation", { id, request })) {
      elicitations.delete(id);
      return Promise.resolve(DECLINED);
    }
    return reply;
  };
  const forward = (kind, way) => (payload) => {
    const ofTheList = kind === "capabilities" || payload?.event === "notifications/capabilities/list_changed";
    if (ofTheList && way === "page" && chosen) return; // changes of tools are announced by the tools themselves
    if (!uninstalled && !duplicateOf(kind, way, payload)) emit(kind, payload);
  };
  const handlers = { elicitation: elicit };
  const handlerFor = (kind, way) => (handlers[kind] ? handlers[kind](way) : forward(kind, way));
  const PAGE_FUNCTIONS = {
    __abp_notification: "notification", __abp_progress: "progress",
    __abp_elicitation: "elicitation", __abp_capabilities_changed: "capabilities",
  };
  for (const [name, kind] of Object.entries(framed ? {} : PAGE_FUNCTIONS)) {
    replace(globalThis, name, handlerFor(kind, "page"));
  }
  const APP_CALLBACKS = {
    onNotification: "notification", onProgress: "progress",
    onElicitation: "elicitation", onCapabilitiesChanged: "capabilities",
  };
  const connected = new WeakSet();
  const connectCallbacks = (abp) => {
    if (abp === harness?.app || connected.has(abp)) return; // tools have no callbacks
    connected.add(abp);
    for (const [name, kind] of Object.entries(APP_CALLBACKS)) {
      const deliver = handlerFor(kind, "callback");
      try {
        if (typeof abp[name] === "function") abp[name](deliver);
        else if (abp[name] === undefined || abp[name] === null) replace(abp, name, deliver);
      } catch { /* frozen, or a getter that throws: such an app can still use the page functions */ }
    }
  };

  // --- requests -----------------------------------------------------------------------------------------------------
  const calls = new Set();   // ids of calls under way, oldest first
  let startingCall = null;   // the call whose handler is running synchronously
  const currentCall = () => startingCall ?? [...calls].at(-1) ?? null;
  const heldContent = new Map(); // id → Blob or Uint8Array that stays in the page until it is fetched
  let nextId = 0;
  const place = `${Math.random()}`.slice(2); // makes ids unique: another document must not answer for this one
  const hold = (value) => {
    const id = `${place}-${nextId++}`;
    heldContent.set(id, value);
    return id;
  };
  // In a frame effects are watched only once it has tools, and print() is left alone.
  const effects = makeEffects({ emit, hold: (blob) => ({ id: hold(blob) }), currentCall, prints: !framed, later: framed });

  const warnings = new WeakMap(); // answer → warnings about it
  const changed = (removed) => {
    if (!framed) return forward("capabilities", "tools")({ removed });
    effects.watch();
    return emit("tools", { name: String(globalThis.name) });
  };
  const harness = makeHarness?.(
    { emit, deliver: (kind, way = "page") => handlerFor(kind, way), blobOfUrl: effects.findBlob, warnings, framed, changed,
      hold, fromBase64: codec.fromBase64 },
    makeTools, makeAnswers);
  // The driven app: window.abp, or the harness's wrapper of the page's WebMCP tools.
  let chosen = null;
  const theApp = () => {
    if (chosen === null && (framed || config.protocol === "webmcp")) chosen = harness.app;
    return chosen ?? globalThis.abp ?? harness?.app;
  };
  let inFrames = false; // whether a frame of the page has tools
  const lookForTools = async (seen) => {
    if (!asksForTools) return false;
    Object.assign(seen, await harness.seeTools());
    return (seen.tools > 0 ? seen.settled : inFrames) && seen.state === "complete";
  };

  // Returns the reply, or a promise of it if the answer holds content.
  const toReply = (answer) => {
    let packed;
    try { packed = codec.pack(answer); } catch (error) {
      if (error instanceof codec.UnsupportedAnswer) return stringify({ refused: error.message });
      throw error;
    }
    const notes = [...warnings.get(answer) ?? [], ...packed.warnings];
    if (packed.found.length) return withBinaries(packed, notes);
    return longByReference(`{"answer":${packed.json},"rest":${notes.length ? stringify({ warnings: notes }) : "{}"}}`);
  };
  const withBinaries = async (packed, notes) => {
    const binaries = [];
    let inlineLeft = config.inline;
    for (const { path, kind, value } of packed.found) {
      if (kind === "broken") { binaries.push([path, kind, value]); continue; }
      const size = kind === "blob" ? Reflect.apply(blobTag, value, []) : value.byteLength;
      const type = kind === "blob" ? value.type : "", name = (kind === "blob" && value.name) || "";
      if (size <= inlineLeft) {
        inlineLeft -= size;
        try {
          const view = kind === "view" ? value : new Uint8Array(await Reflect.apply(blobBytes, value, []));
          binaries.push([path, "base64", codec.toBase64(view), type, name]);
        } catch (error) { binaries.push([path, "broken", String(error)]); }
      } else {
        binaries.push([path, "held", hold(value), type, name, size]);
      }
    }
    return longByReference(`{"answer":${packed.json},"rest":${stringify({ binaries, warnings: notes })}}`);
  };
  // Very long text is fetched as large content: the channel would copy each character several times.
  const longByReference = (text) => {
    if (text.length <= config.longest) return text;
    const blob = new NativeBlob([text]);
    return stringify({ id: hold(blob), size: Reflect.apply(blobTag, blob, []) });
  };
  // A list of capabilities holds no content and may be long, so it skips the codec, unless it holds a lone surrogate.
  const listReply = (list) => {
    try {
      const text = stringify(list ?? null);
      if (!/\\ud[89a-f]/i.test(text)) return longByReference(`{"answer":${text},"rest":{}}`);
    } catch { /* a cycle, a BigInt: handled by the codec */ }
    return toReply(list);
  };

  // --- messages for some origins only: checked here, before any part of them reaches a function of the app -----------
  class Misdirected { constructor(origin) { this.origin = origin; } }
  const admit = (origins, origin) => {
    if (origins === undefined || origins === null) return;
    for (let index = 0; index < origins.length; index += 1) if (origins[index] === origin) return;
    throw new Misdirected(origin);
  };
  const ownOrigin = () => (location.origin === givenOrigin ? givenOrigin : "null");
  const receiver = () => harness?.receiver?.() ?? ownOrigin();

  const toError = (error) => (error instanceof Misdirected ? stringify({ denied: error.origin }) : stringify({
    threw: String(error?.message || error), name: typeof error?.name === "string" ? error.name : "",
  }));
  // Returns the parameters of a request with its content in them; inputs: one <input> per file.
  const withContent = async ({ params, base64, files }, inputs) => {
    const contents = base64.map(([path, encoded]) => [path, codec.fromBase64(encoded).buffer]);
    for (const [index, path] of files.entries()) {
      contents.push([path, await Reflect.apply(blobBytes, inputs[index].files[0], [])]);
    }
    return codec.insertContent(params, contents);
  };
  const replyOf = async (work) => {
    try { return await toReply(await work()); } catch (error) { return toError(error); }
  };
  const waitAtMost = (milliseconds, promise) =>
    Promise.race([promise, new Promise((resolve) => setTimer(resolve, milliseconds, undefined))]);

  const agent = {
    __proto__: null,
    ...effects,
    ...harness,
    // Describes window.abp once it is complete, or the page's tools, or the state `grace` ms after the document has loaded.
    // A page with both is driven by window.abp.
    async ready(grace) {
      let completeAt = null;
      for (;;) {
        const seen = { protocol: "abp", present: false, missing: [], threw: null, title: document.title, state: document.readyState };
        if (config.protocol !== "webmcp") {
          try {
            const abp = globalThis.abp;
            seen.present = abp !== undefined && abp !== null;
            if (seen.present) seen.missing = ["initialize", "call"].filter((name) => typeof abp[name] !== "function");
          } catch (error) { seen.threw = String(error); }
          if (seen.present && !seen.missing.length && !seen.threw) {
            harness?.standAside?.();
            return stringify(seen);
          }
        }
        if (seen.state === "complete") completeAt ??= Date.now();
        if (await lookForTools(seen) && (config.protocol === "webmcp" || Date.now() - completeAt >= APP_LEAD)) {
          chosen = harness.app;
          return stringify({ ...seen, protocol: "webmcp" });
        }
        if (completeAt !== null && Date.now() - completeAt >= grace) return stringify(seen);
        await new Promise((resolve) => setTimer(resolve, 10));
      }
    },
    // Ends ready() for a page whose frames have tools.
    findInFrames() { inFrames = true; },
    initialize(text) {
      return replyOf(async () => {
        const app = theApp();
        connectCallbacks(app);
        const begin = () => app.initialize(parse(text)), isTaken = (error) => error?.code === "ALREADY_INITIALIZED";
        let result;
        try { result = await begin(); } catch (error) {
          if (config.borrowed || !isTaken(error)) throw error;
          result = { error };
        }
        // In a page of ours an existing session belongs to the page itself, for example to abp-webmcp.js, which can open
        // a new one. So it is ended. In a borrowed page it may be the user's.
        if (!config.borrowed && isTaken(result?.error)) {
          await app.shutdown?.({ reason: "another client takes over" });
          result = await begin();
        }
        connectCallbacks(theApp());
        return result;
      });
    },
    origin: () => ownOrigin(),
    async list() {
      try { return await listReply(await theApp().listCapabilities?.()); } catch (error) { return toError(error); }
    },
    // request: {capability, params, options, origins?}, with content also {base64: [[path, text]], files: [path]}.
    async call(text, ...inputs) {
      try {
        const request = parse(text), { capability, params, options, origins } = request, id = options.callId;
        if (origins !== undefined) admit(origins, receiver());
        const filled = request.base64 === undefined ? params : await withContent(request, inputs);
        calls.add(id);
        let answer;
        try {
          startingCall = id;
          try { answer = theApp().call(capability, filled, options); } finally { startingCall = null; }
          answer = await answer;
        } finally { calls.delete(id); }
        return await toReply(answer);
      } catch (error) { return toError(error); }
    },
    // Tries both documented forms, since apps accept one or the other, with a timeout of 400 ms each.
    async cancel(callId, reason) {
      for (const parameters of [[callId, reason], [{ callId, reason }]]) {
        try {
          const answer = await waitAtMost(400, theApp().cancel(...parameters));
          if (answer && answer.cancelled === true) return stringify({ answer, rest: {} });
        } catch { /* the other form, then */ }
      }
      return stringify({ answer: { callId, cancelled: false }, rest: {} });
    },
    shutdown: (text) => replyOf(() => waitAtMost(1000, theApp()?.shutdown?.(parse(text)))),
    answer(id, text, origins) {
      let answer = DECLINED;
      try {
        admit(origins, receiver());
        answer = parse(text);
      } catch { /* not for this document */ }
      elicitations.get(id)?.(answer);
      elicitations.delete(id);
    },
    // --- content held in the page, in the forms needed by the rungs of the ladder (transfer/ladder.py) ---
    blob(id, start, end) {
      const value = heldContent.get(id);
      if (value instanceof Uint8Array) return new NativeBlob([value.subarray(start, end)]);
      return start === 0 && end >= Reflect.apply(blobTag, value, []) ? value : Reflect.apply(blobSlice, value, [start, end]);
    },
    url: (id, start, end) => createURL(agent.blob(id, start, end)),
    revoke: (url) => revokeURL(url),
    async base64(id, start, end) {
      const value = heldContent.get(id);
      if (value instanceof Uint8Array) return codec.toBase64(value.subarray(start, end));
      return codec.toBase64(new Uint8Array(await Reflect.apply(blobBytes, agent.blob(id, start, end), [])));
    },
    // Holds the content of a blob: URL of the app. Throws if it is revoked, or forbidden by the app's policy.
    async holdUrl(url) {
      const blob = await (await fetch(url)).blob();
      return stringify({ id: hold(blob), size: Reflect.apply(blobTag, blob, []) });
    },
    release(...ids) { for (const id of ids) heldContent.delete(id); },
    // The element is never attached, so the DOM does not change.
    createFileInput: () => Object.assign(Reflect.apply(createElement, document, ["input"]), { type: "file" }),
    chosenSize: (input) => input.files[0]?.size ?? -1,
    // An object like a file input, filled piece by piece, for browsers that cannot read our files.
    createFileBuffer: () => ({ parts: [], files: [] }),
    appendToBuffer(buffer, text) {
      buffer.parts.push(codec.fromBase64(text));
      buffer.files[0] = new NativeBlob(buffer.parts);
    },
    // The link is not in the document, so the DOM does not change. `name` identifies the file in the browser's events.
    clickDownload(url, name) {
      const link = Reflect.apply(createElement, document, ["a"]);
      Reflect.apply(setAttribute, link, ["href", url]);
      Reflect.apply(setAttribute, link, ["download", name]);
      Reflect.apply(clickOn, link, []);
    },
    // Downloads held content in the same way. The browser resolves the URL at the click, so it is revoked at once.
    download(id, start, end, name) {
      const url = agent.url(id, start, end);
      agent.clickDownload(url, name);
      revokeURL(url);
    },
    uninstall() {
      uninstalled = true;
      for (const answer of elicitations.values()) answer(DECLINED);
      for (const step of undo.splice(0)) step();
      effects.unhook();
      harness?.standAside?.();
    },
  };
  return Object.freeze(agent);
}
