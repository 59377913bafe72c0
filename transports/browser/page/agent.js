// Our side of the page: runs before the app's first script in every document, exposes the page functions of the
// protocol, and hands its agent object to whoever knows the key. It leaves nothing else behind.
// A function expression: called as agent({binding, key, inline}, codec, effects, harness?).
(config, makeCodec, makeEffects, makeHarness) => {
  "use strict";
  // The raw binding is ours alone: taken, then removed before anybody sees it.
  const send = globalThis[config.binding];
  delete globalThis[config.binding];
  if (globalThis !== globalThis.top || typeof send !== "function") return;

  // Natives as they are now: what the app replaces later is its own affair.
  const bufferTag = Object.getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get;
  const sharedTag = globalThis.SharedArrayBuffer &&
    Object.getOwnPropertyDescriptor(SharedArrayBuffer.prototype, "byteLength").get;
  const blobTag = Object.getOwnPropertyDescriptor(Blob.prototype, "size").get;
  const is = (getter) => (value) => {
    if (!getter || typeof value !== "object" || value === null) return false;
    try { Reflect.apply(getter, value, []); return true; } catch { return false; }
  };
  const encode = Uint8Array.prototype.toBase64, decode = Uint8Array.fromBase64;
  const blobSlice = Blob.prototype.slice, blobBytes = Blob.prototype.arrayBuffer;
  const createURL = URL.createObjectURL.bind(URL), revokeURL = URL.revokeObjectURL.bind(URL);
  const createElement = Document.prototype.createElement, clickOn = HTMLElement.prototype.click;
  const fetch = globalThis.fetch.bind(globalThis);
  const later = globalThis.setTimeout.bind(globalThis);
  const NativeBlob = Blob;
  const codec = makeCodec({
    stringify: JSON.stringify, rawJSON: JSON.rawJSON, isView: ArrayBuffer.isView,
    isBuffer: is(bufferTag), isShared: is(sharedTag), isBlob: is(blobTag),
    toBase64: (view) => Reflect.apply(encode, view, []), fromBase64: (text) => Reflect.apply(decode, Uint8Array, [text]),
  });
  const { parse, stringify } = JSON;
  const emit = (kind, payload) => send(codec.pack([kind, payload]).json);

  let gone = false; // the app may keep what it was given
  const undo = []; // what a page that goes on without us gets back
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
  const last = new Map(); // kind → what came last, and by which of the two ways
  const twin = (kind, way, payload) => {
    const text = codec.pack(payload).json, now = Date.now(), before = last.get(kind);
    if (before && before.way !== way && before.text === text && now - before.at < 100) {
      last.delete(kind);
      return before;
    }
    last.set(kind, { way, text, at: now, reply: undefined });
    return undefined;
  };
  const questions = new Map(); // elicitations that wait for an answer
  const DECLINED = { success: false, cancelled: true };
  const elicit = (way) => (request) => {
    if (gone) return Promise.resolve(DECLINED);
    const same = twin("elicitation", way, request);
    if (same) return same.reply;
    const id = crypto.randomUUID ? crypto.randomUUID() : String(Math.random());
    const reply = new Promise((resolve) => questions.set(id, resolve));
    last.get("elicitation").reply = reply;
    emit("elicitation", { id, request });
    return reply;
  };
  const forward = (kind, way) => (payload) => { if (!gone && !twin(kind, way, payload)) emit(kind, payload); };
  const ways = { elicitation: elicit };
  const handler = (kind, way) => (ways[kind] ? ways[kind](way) : forward(kind, way));
  const PAGE_FUNCTIONS = {
    __abp_notification: "notification", __abp_progress: "progress",
    __abp_elicitation: "elicitation", __abp_capabilities_changed: "capabilities",
  };
  for (const [name, kind] of Object.entries(PAGE_FUNCTIONS)) {
    const deliver = handler(kind, "page");
    replace(globalThis, name, (payload) => (payload === config.key ? agent : deliver(payload)));
  }
  const OWN_EVENTS = {
    onNotification: "notification", onProgress: "progress",
    onElicitation: "elicitation", onCapabilitiesChanged: "capabilities",
  };
  const hooked = new WeakSet();
  const listen = (abp) => {
    if (hooked.has(abp)) return;
    hooked.add(abp);
    for (const [name, kind] of Object.entries(OWN_EVENTS)) {
      const deliver = handler(kind, "own");
      try {
        if (typeof abp[name] === "function") abp[name](deliver);
        else if (abp[name] === undefined || abp[name] === null) replace(abp, name, deliver);
      } catch { /* frozen, or a getter that throws: then the app uses the page functions */ }
    }
  };

  // --- requests -----------------------------------------------------------------------------------------------------
  const calls = new Set(); // ids under way, oldest first
  let starting = null;     // the call whose handler is running synchronously
  const running = () => starting ?? [...calls].at(-1) ?? null;
  const held = new Map();  // id → Blob or Uint8Array that stayed here
  let nextId = 0;
  const hold = (value) => {
    const id = String(nextId++);
    held.set(id, value);
    return id;
  };
  const effects = makeEffects({ emit, hold: (blob) => ({ id: hold(blob) }), running });

  const replied = async (answer) => {
    let packed;
    try { packed = codec.pack(answer); } catch (error) {
      if (error instanceof codec.Refused) return JSON.stringify({ refused: error.message });
      throw error;
    }
    const binaries = [];
    let room = config.inline;
    for (const { path, kind, value } of packed.found) {
      if (kind === "broken") { binaries.push([path, kind, value]); continue; }
      const size = kind === "blob" ? Reflect.apply(blobTag, value, []) : value.byteLength;
      const type = kind === "blob" ? value.type : "", name = (kind === "blob" && value.name) || "";
      if (size <= room) {
        room -= size;
        try {
          const view = kind === "view" ? value : new Uint8Array(await Reflect.apply(blobBytes, value, []));
          binaries.push([path, "base64", codec.toBase64(view), type, name]);
        } catch (error) { binaries.push([path, "broken", String(error)]); }
      } else {
        binaries.push([path, "held", hold(value), type, name, size]);
      }
    }
    const rest = packed.warnings.length || binaries.length ? JSON.stringify({ binaries, warnings: packed.warnings }) : "{}";
    return handed(`{"answer":${packed.json},"rest":${rest}}`);
  };
  // Text that is very long takes the way of large content: the channel copies each character several times.
  const handed = (text) => {
    if (text.length <= config.longest) return text;
    const blob = new NativeBlob([text]);
    return stringify({ text: hold(blob), size: Reflect.apply(blobTag, blob, []) });
  };
  // A list of capabilities holds no content, and may be long: as it is, unless there is half of a surrogate pair in it.
  const listed = (list) => {
    try {
      const text = stringify(list ?? null);
      if (!/\\ud[89a-f]/i.test(text)) return handed(`{"answer":${text},"rest":{}}`);
    } catch { /* a cycle, a BigInt: the codec knows what to do */ }
    return replied(list);
  };

  const failed = (error) => JSON.stringify({ threw: String((error && error.message) || error), name: String(error && error.name) });
  const guarded = async (work) => {
    try { return await replied(await work()); } catch (error) { return failed(error); }
  };
  const within = (milliseconds, promise) =>
    Promise.race([promise, new Promise((resolve) => later(resolve, milliseconds, undefined))]);

  const agent = {
    ...effects,
    ...makeHarness?.({ emit, deliver: (kind) => handler(kind, "page") }),
    // What stands at window.abp, until it is whole or `grace` ms have passed since the document was complete.
    async ready(grace) {
      let completeAt = null;
      for (;;) {
        const seen = { present: false, missing: [], threw: null, title: document.title, state: document.readyState };
        try {
          const abp = globalThis.abp;
          seen.present = abp !== undefined && abp !== null;
          if (seen.present) seen.missing = ["initialize", "call"].filter((name) => typeof abp[name] !== "function");
        } catch (error) { seen.threw = String(error); }
        if (seen.present && !seen.missing.length && !seen.threw) return JSON.stringify(seen);
        if (seen.state === "complete") completeAt ??= Date.now();
        if (completeAt !== null && Date.now() - completeAt >= grace) return JSON.stringify(seen);
        await new Promise((resolve) => later(resolve, 10));
      }
    },
    initialize(text) {
      return guarded(async () => {
        listen(globalThis.abp);
        const result = await globalThis.abp.initialize(parse(text));
        listen(globalThis.abp);
        return result;
      });
    },
    async list() {
      try { return await listed(await globalThis.abp.listCapabilities?.()); } catch (error) { return failed(error); }
    },
    // request: {capability, params, options, base64: [[path, text]], files: [path]}; inputs: one <input> per file.
    call(text, ...inputs) {
      return guarded(async () => {
        const { capability, params, options, base64 = [], files = [] } = parse(text);
        const places = base64.map(([path, encoded]) => [path, codec.fromBase64(encoded).buffer]);
        for (const [index, path] of files.entries()) {
          places.push([path, await Reflect.apply(blobBytes, inputs[index].files[0], [])]);
        }
        const filled = codec.fill(params, places), id = options.callId;
        calls.add(id);
        try {
          let answer;
          starting = id;
          try { answer = globalThis.abp.call(capability, filled, options); } finally { starting = null; }
          return await answer;
        } finally { calls.delete(id); }
      });
    },
    // Both documented forms; some apps take one, some the other. An app that hangs here is given up on.
    async cancel(callId, reason) {
      for (const parameters of [[callId, reason], [{ callId, reason }]]) {
        try {
          const answer = await within(400, globalThis.abp.cancel(...parameters));
          if (answer && answer.cancelled === true) return JSON.stringify({ answer, rest: {} });
        } catch { /* the other form, then */ }
      }
      return JSON.stringify({ answer: { callId, cancelled: false }, rest: {} });
    },
    shutdown: (text) => guarded(() => within(1000, globalThis.abp?.shutdown?.(parse(text)))),
    answer(id, text) {
      questions.get(id)?.(parse(text));
      questions.delete(id);
    },
    // --- content that stayed here, as the rungs of the ladder want it ---
    blob(id, start, end) {
      const value = held.get(id);
      if (value instanceof Uint8Array) return new NativeBlob([value.subarray(start, end)]);
      return start === 0 && end >= Reflect.apply(blobTag, value, []) ? value : Reflect.apply(blobSlice, value, [start, end]);
    },
    url: (id, start, end) => createURL(agent.blob(id, start, end)),
    revoke: (url) => revokeURL(url),
    async base64(id, start, end) {
      const value = held.get(id);
      if (value instanceof Uint8Array) return codec.toBase64(value.subarray(start, end));
      return codec.toBase64(new Uint8Array(await Reflect.apply(blobBytes, agent.blob(id, start, end), [])));
    },
    // A blob: URL that the app gave away instead of the Blob; revoked, or forbidden by a policy, it throws.
    async keep(url) {
      const blob = await (await fetch(url)).blob(), id = String(nextId++);
      held.set(id, blob);
      return [id, Reflect.apply(blobTag, blob, [])];
    },
    release(...ids) { for (const id of ids) held.delete(id); },
    // A detached element changes no DOM.
    input: () => Object.assign(Reflect.apply(createElement, document, ["input"]), { type: "file" }),
    chosen: (input) => input.files[0]?.size ?? -1,
    // Stands for an input where the browser cannot read our files: filled piece by piece.
    basket: () => ({ parts: [], files: [] }),
    fill(basket, text) {
      basket.parts.push(codec.fromBase64(text));
      basket.files[0] = new NativeBlob(basket.parts);
    },
    click(url) {
      const link = Reflect.apply(createElement, document, ["a"]);
      Reflect.apply(clickOn, Object.assign(link, { href: url, download: "" }), []);
    },
    leave() {
      gone = true;
      for (const answer of questions.values()) answer(DECLINED);
      for (const step of undo.splice(0)) step();
      effects.unhook();
    },
  };
}
