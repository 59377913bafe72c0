// The agent in a page: runs before the app's first script in every document and exposes the page functions of the
// protocol. It returns the agent object, which the channel passes to Python past the page: no script of the app may ever
// hold it. So every function here is strict (a sloppy function exposes its `this` to its callees as `caller`), and the
// agent is never an argument.
// A function expression, called as agent({binding, inline, longest, late?, protocol?}, natives, codec, effects, harness?,
// tools?, answers?), where the last two are arguments of the harness. With `late` scripts of the page have run already. With
// `protocol` "webmcp" or "auto", each frame gets an agent of its own for its own tools, separate from the page's; otherwise
// the function returns undefined in a frame.
(config, makeNatives, makeCodec, makeEffects, makeHarness, makeTools, makeAnswers) => {
  "use strict";
  // A frame gives no PDF: its first print() is reported, and the call warns of it.
  const reportPrint = (send) => {
    const native = window.print;
    if (typeof native !== "function") return;
    let reported = false;
    const replacement = {
      print() {
        if (!reported) send('["frameprint",{}]');
        reported = true;
        native();
      },
    };
    try { window.print = replacement.print; } catch { /* fixed by the page, before a late agent */ }
  };
  // The raw binding is removed before any script of the app can see it.
  const { binding } = config, send = window[binding];
  delete window[binding];
  const framed = window !== window.top, asksForTools = config.protocol === "webmcp" || config.protocol === "auto";
  if (typeof send !== "function") return undefined;
  if (framed) reportPrint(send);
  const natives = makeNatives(config.late);
  if (natives === undefined) return undefined; // a frame of natives.js itself
  const {
    Blob, Map, Promise, Set, String, Uint8Array, WeakMap, WeakSet, apply, blobArrayBuffer, blobPrototype, blobSize, blobSlice, blobType,
    clock, createHtmlElement, createObjectURL, defineProperty, documentDefaultView, documentQuerySelector, documentReadyState, documentTitle,
    elementTagName, fetch, fileName, filesItem, filterList, firstOf, freeze, getOwnPropertyDescriptor, hasOwn,
    inputFiles, installProxy, isForeign, keys, lastKey, listForEach, listPush, mapList, matches, messageOf, min, nodeBaseURI, objectIsPrototypeOf, ofPage, parse, quietly, random,
    responseBlob, revokeObjectURL, sequence, set, setInputType, setTimeout, stringify, textSlice, textToWellFormed,
    typedArrayBuffer, typedArrayOffset, typedArraySize, wait, wordsOf,
  } = natives;
  // Chromium 156 crashes when this getter is asked of a document without a window, such as a DOMParser makes: scripts that
  // list the members of documents do that.
  quietly(() => installProxy(ofPage.Document.prototype, "modelContext", (native, self, args) => (
    documentDefaultView(self) === null ? undefined : apply(native, self, args)
  ), "get"));
  if (framed && !asksForTools) return undefined;
  const codec = makeCodec(natives);
  const { toJson, UnsupportedAnswer } = codec;

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
    if (first < next) setTimeout(sendLate, 50);
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
      if (leftOut === 1 || leftOut > MAX_LEFT_OUT) send(toJson(["flood", { ended: leftOut > MAX_LEFT_OUT }]));
      return false;
    }
    if (first === next) setTimeout(sendLate, 50);
    late[next] = text;
    next += 1;
    lateText += text.length;
    return true;
  };

  let uninstalled = false; // the app may keep references to our functions
  const undo = []; // steps that restore a page that stays open without us
  const replace = (target, name, value) => quietly(() => {
    const before = getOwnPropertyDescriptor(target, name);
    if (!set(target, name, value)) return; // fixed: such an app can still use the other way
    listPush(undo, () => {
      if (target[name] !== value) return;
      delete target[name];
      if (before) defineProperty(target, name, before);
    });
  });

  // --- events: page functions of the protocol, and the app's own callbacks; each event is delivered once -----------
  const lastEvents = new Map(); // kind → the last event, and its way: page function or callback
  // Returns the same event if it came just before over the other way: some apps use both ways for one event.
  const duplicateOf = (kind, way, payload) => {
    const text = codec.pack(payload).json, now = clock(), before = lastEvents.get(kind);
    if (before && before.way !== way && before.text === text && now - before.at < 100) {
      lastEvents.delete(kind);
      return before;
    }
    lastEvents.set(kind, { way, text, at: now, reply: undefined });
    return undefined;
  };
  const elicitations = new Map(); // id → resolve of an elicitation that waits for its answer
  const DECLINED = { success: false, cancelled: true };
  // An event that cannot be sent is the app's fault, but must not end its work.
  const refuse = (kind, error) => emit("unsent", { call: currentCall(), reason: `${kind}: ${messageOf(error)}` });
  const elicit = (way) => (request) => {
    if (uninstalled) return answered(DECLINED);
    try {
      const same = duplicateOf("elicitation", way, request);
      if (same) return same.reply;
      const id = `${random()}`, reply = new Promise((resolve) => elicitations.set(id, resolve));
      lastEvents.get("elicitation").reply = reply;
      if (emit("elicitation", { id, request })) return reply;
      elicitations.delete(id);
    } catch (error) { refuse("elicitation", error); }
    return answered(DECLINED);
  };
  const answered = async (answer) => answer;
  const forward = (kind, way) => (payload) => {
    try {
      const event = payload?.event ?? payload?.method;
      const ofTheList = kind === "capabilities" || event === "notifications/capabilities/list_changed";
      if (ofTheList && way !== "tools" && chosen) return; // changes of tools are announced by the tools themselves
      if (!uninstalled && !duplicateOf(kind, way, payload)) emit(kind, payload);
    } catch (error) { refuse(kind, error); }
  };
  const handlerFor = (kind, way) => (kind === "elicitation" ? elicit(way) : forward(kind, way));
  const PAGE_FUNCTIONS = {
    page: {
      __abp_notification: "notification", __abp_progress: "progress",
      __abp_elicitation: "elicitation", __abp_capabilities_changed: "capabilities",
    },
    guide: { __abp_notify: "notification", __abpOnProgress: "progress" }, // names in samples of the protocol's guides
  };
  if (!framed) {
    listForEach(keys(PAGE_FUNCTIONS), (way) => listForEach(keys(PAGE_FUNCTIONS[way]), (name) =>
      replace(window, name, handlerFor(PAGE_FUNCTIONS[way][name], way))));
  }
  const APP_CALLBACKS = {
    onNotification: "notification", onProgress: "progress",
    onElicitation: "elicitation", onCapabilitiesChanged: "capabilities",
  };
  const connected = new WeakSet();
  const connectCallbacks = (abp) => {
    if (abp === harness?.app || connected.has(abp)) return; // tools have no callbacks
    connected.add(abp);
    listForEach(keys(APP_CALLBACKS), (name) => quietly(() => { // frozen, or a getter that throws
      const deliver = handlerFor(APP_CALLBACKS[name], "callback");
      if (typeof abp[name] === "function") abp[name](deliver);
      else if (abp[name] === undefined || abp[name] === null) replace(abp, name, deliver);
    }));
  };

  // --- requests -----------------------------------------------------------------------------------------------------
  const calls = new Set();   // ids of calls under way, oldest first
  let startingCall = null;   // the call whose handler is running synchronously
  const currentCall = () => startingCall ?? lastKey(calls);
  const within = (call, run) => {
    const before = startingCall;
    startingCall = call;
    try { return run(); } finally { startingCall = before; }
  };
  // The call whose microtasks are running: libraries such as axios send their requests there.
  let startedCall = null;
  const ownMicrotasks = async (call) => {
    startedCall = call;
    for (let microtask = 0; microtask < 20; microtask += 1) await undefined;
    if (startedCall === call) startedCall = null;
  };
  const heldContent = new Map(); // id → Blob or Uint8Array that stays in the page until it is fetched
  let nextId = 0;
  const place = textSlice(`${random()}`, 2); // makes ids unique: another document must not answer for this one
  const hold = (value) => {
    const id = `${place}-${nextId++}`;
    heldContent.set(id, value);
    return id;
  };
  // In a frame effects are watched only once it has tools, and print() is left alone.
  const effects = makeEffects({
    natives, toJson, emit, hold: (blob) => ({ id: hold(blob) }), currentCall,
    startingCall: () => startingCall ?? startedCall, ownMicrotasks, isUnderWay: (call) => calls.has(call), within, prints: !framed, later: framed,
  });

  const warnings = new WeakMap(); // answer → warnings about it
  const changed = (removed) => {
    if (!framed) return forward("capabilities", "tools")({ removed });
    effects.watch();
    return emit("tools", { name: quietly(() => String(window.name)) ?? "" });
  };
  const harness = makeHarness?.(
    { natives, toJson, emit, deliver: (kind, way = "page") => handlerFor(kind, way), blobOfUrl: effects.findBlob, framed,
      addWarnings: (answer, texts) => warnings.set(answer, texts), changed, hold },
    makeTools, makeAnswers);
  // The driven app: window.abp, or the harness's wrapper of the page's WebMCP tools.
  let chosen = null;
  const theApp = () => {
    if (chosen === null && (framed || config.protocol === "webmcp")) chosen = harness.app;
    return chosen ?? window.abp ?? harness?.app;
  };
  // Whether the page is driven by its tools, which are given `lead` for an app to come first. `inFrames` is whether a frame
  // of the page has tools.
  const choosesTools = async (seen, inFrames, lead) => {
    if (!asksForTools) return false;
    const { tools, settled, webmcp } = await harness.seeTools();
    seen.webmcp = webmcp;
    if (seen.state !== "complete" || !(tools > 0 ? settled : inFrames)) return false;
    return config.protocol === "webmcp" || lead;
  };
  // An element whose id is abp stands for window.abp until there is one.
  const isElement = (value) => quietly(() => elementTagName(value)) !== undefined;

  // Returns the reply, or a promise of it if the answer holds content.
  const toReply = (answer) => {
    let packed;
    try { packed = codec.pack(answer); } catch (error) {
      if (UnsupportedAnswer.is(error)) return toJson({ refused: error.message });
      throw error;
    }
    const notes = warnings.get(answer) ?? [];
    listForEach(packed.warnings, (text) => listPush(notes, text));
    if (packed.found.length) return withBinaries(packed, notes);
    return longByReference(`{"answer":${packed.json},"rest":${notes.length ? toJson({ warnings: notes }) : "{}"}}`);
  };
  // Views are taken at once: an app may fill or transfer their buffers again while a Blob is awaited, or the content fetched.
  const withBinaries = async (packed, notes) => {
    const binaries = [], blobs = [];
    let inlineLeft = config.inline;
    const isInline = (size) => {
      const fits = size <= inlineLeft;
      if (fits) inlineLeft -= size;
      return fits;
    };
    listForEach(packed.found, ({ path, kind, value }) => {
      if (kind === "broken") listPush(binaries, [path, kind, value]);
      else if (kind === "blob") listPush(blobs, { path, value });
      else listPush(binaries, fromView(path, value, isInline));
    });
    for (let index = 0; index < blobs.length; index += 1) {
      const { path, value } = blobs[index];
      listPush(binaries, await fromBlob(path, value, isInline));
    }
    return longByReference(`{"answer":${packed.json},"rest":${toJson({ binaries, warnings: notes })}}`);
  };
  const fromView = (path, view, isInline) => {
    const size = typedArraySize(view);
    try {
      if (isInline(size)) return [path, "base64", codec.toBase64(view), "", "", size];
      return [path, "held", hold(isForeign(Blob) ? new Uint8Array(view) : new Blob(sequence([view]))), "", "", size];
    } catch (error) { return [path, "broken", wordsOf(error)]; }
  };
  const fromBlob = async (path, blob, isInline) => {
    const size = blobSize(blob), type = blobType(blob), name = nameOf(blob);
    if (!isInline(size)) return [path, "held", hold(blob), type, name, size];
    try { return [path, "base64", codec.toBase64(await bytesOfBlob(blob)), type, name, size]; } catch (error) {
      return [path, "broken", wordsOf(error)];
    }
  };
  // A Blob of a window that has gone never gives its bytes, but a Blob of the page made of it does.
  const bytesOfBlob = async (blob) => {
    const isUsable = isForeign(Blob) || objectIsPrototypeOf(blobPrototype, blob);
    return new Uint8Array(await blobArrayBuffer(isUsable ? blob : new Blob(sequence([blob]))));
  };
  // The name of a File, or that an app gave to a Blob.
  const nameOf = (blob) => {
    const name = quietly(() => fileName(blob)) ?? quietly(() => blob.name);
    return typeof name === "string" ? textToWellFormed(name) : "";
  };
  // Very long text is fetched as large content: the channel would copy each character several times.
  const longByReference = (text) => {
    if (text.length <= config.longest) return text;
    const blob = new Blob(sequence([text]));
    return toJson({ id: hold(blob), size: blobSize(blob) });
  };
  // A list of capabilities holds no content and may be long, so it skips the codec, unless it holds a lone surrogate.
  const listReply = (list) => {
    try {
      const text = stringify(list ?? null);
      if (!codec.pageHasToJson() && !matches(/\\ud[89a-f]/i, text)) return longByReference(`{"answer":${text},"rest":{}}`);
    } catch { /* a cycle, a BigInt: handled by the codec */ }
    return toReply(list);
  };

  // --- messages for some origins only: checked here, before any part of them reaches a function of the app -----------
  class Misdirected {
    #mark;
    constructor(origin) { this.origin = origin; }
    static is(error) { return typeof error === "object" && error !== null && #mark in error; }
  }
  const admit = (origins, origin) => {
    if (origins === undefined || origins === null) return;
    for (let index = 0; index < origins.length; index += 1) if (origins[index] === origin) return;
    throw new Misdirected(origin);
  };
  // The origin of the environment: unlike location.origin it is "null" in a sandbox. No script can change location.
  const ownOrigin = () => (location.origin === natives.origin ? natives.origin : "null");
  const receiver = () => harness?.receiver?.() ?? ownOrigin();

  const titleOf = () => textToWellFormed(documentTitle(document));
  const toError = (error) => {
    if (Misdirected.is(error)) return toJson({ denied: error.origin });
    const name = quietly(() => error.name);
    return toJson({ threw: messageOf(error), name: typeof name === "string" ? textToWellFormed(name) : "" });
  };
  // Returns the parameters of a request with its content in them; inputs: one <input> per file.
  const withContent = async ({ params, base64, files }, inputs) => {
    const contents = mapList(base64, (entry) => [entry[0], typedArrayBuffer(codec.fromBase64(entry[1]))]);
    for (let index = 0; index < files.length; index += 1) {
      listPush(contents, [files[index], await blobArrayBuffer(chosenFile(inputs[index]))]);
    }
    return codec.insertContent(params, contents);
  };
  const replyOf = async (work) => {
    try { return await toReply(await work()); } catch (error) { return toError(error); }
  };
  const waitAtMost = (milliseconds, promise) => firstOf(promise, wait(milliseconds));
  // The file of an <input>, or of our own like of one.
  const chosenFile = (input) => (hasOwn(input, "parts") ? input.file : filesItem(inputFiles(input), 0));
  const piece = (view, start, end) => {
    const size = typedArraySize(view), stop = min(end ?? size, size), begin = min(start ?? 0, stop);
    return new Uint8Array(typedArrayBuffer(view), typedArrayOffset(view) + begin, stop - begin);
  };

  const agent = {
    __proto__: null,
    ...effects,
    ...harness,
    // Describes the page as it is now: window.abp, or its tools. A page with both is driven by window.abp.
    async look(inFrames, lead) {
      const seen = { protocol: "abp", present: false, missing: [], threw: null, title: titleOf(), state: documentReadyState(document) };
      if (config.protocol !== "webmcp") {
        try {
          const { abp } = window;
          seen.present = abp !== undefined && abp !== null && !isElement(abp);
          if (seen.present) seen.missing = filterList(["initialize", "call"], (name) => typeof abp[name] !== "function");
        } catch (error) { seen.threw = wordsOf(error); }
        if (seen.present && !seen.missing.length && seen.threw === null) {
          harness?.standAside?.();
          return toJson(seen);
        }
      }
      if (await choosesTools(seen, inFrames, lead)) {
        chosen = harness.app;
        seen.protocol = "webmcp";
      }
      return toJson(seen);
    },
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
    base: () => (documentQuerySelector(document, "base[href]") ? nodeBaseURI(document) : ""),
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
        let answer, reply;
        try {
          const start = clock();
          const answering = within(id, () => theApp().call(capability, filled, options)), started = ownMicrotasks(id);
          answer = await answering;
          await started;
          effects.expectEmbeds(id);
          if (effects.leavesMore(id, start)) {
            reply = replyOf(() => answer); // at once: the app may change its answer during the wait
            // The time of the call itself must not run out.
            const time = 0.8 * (getOwnPropertyDescriptor(options, "timeout")?.value ?? 1e9);
            await effects.turns(id, start + time);
          }
        } finally { calls.delete(id); }
        return await (reply ?? toReply(answer));
      } catch (error) { return toError(error); }
    },
    // Tries both documented forms, since apps accept one or the other, with a timeout of 400 ms each.
    async cancel(callId, reason) {
      const forms = [() => theApp().cancel(callId, reason), () => theApp().cancel({ callId, reason })];
      for (let form = 0; form < forms.length; form += 1) {
        try {
          const answer = await waitAtMost(400, forms[form]());
          if (answer && answer.cancelled === true) return (await toReply(answer));
        } catch { /* the other form, then */ }
      }
      return toJson({ answer: { callId, cancelled: false }, rest: {} });
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
    // --- content held in the page, in the forms needed by the rungs of the ladder (playwright/_content.py) ---
    blob(id, start, end) {
      const value = heldContent.get(id);
      if (codec.isView(value)) return new Blob(sequence([piece(value, start, end)]));
      return start === 0 && end >= blobSize(value) ? value : blobSlice(value, start, end);
    },
    // Returns "" if the page has replaced the function that makes URLs.
    url: (id, start, end) => (isForeign(createObjectURL) ? "" : createObjectURL(agent.blob(id, start, end))),
    revoke: (url) => revokeObjectURL(url),
    async base64(id, start, end) {
      const value = heldContent.get(id);
      if (codec.isView(value)) return codec.toBase64(piece(value, start, end));
      return codec.toBase64(await bytesOfBlob(agent.blob(id, start, end)));
    },
    // Holds the content of a blob: URL of the app. Throws if it is revoked, or forbidden by the app's policy.
    async holdUrl(url) {
      const blob = await responseBlob(await fetch(url));
      return toJson({ id: hold(blob), size: blobSize(blob) });
    },
    release(...ids) { listForEach(ids, (id) => heldContent.delete(id)); },
    // The element is never attached, so the DOM does not change.
    createFileInput() {
      const input = createHtmlElement("input");
      setInputType(input, "file");
      return input;
    },
    chosenSize(input) {
      const file = chosenFile(input);
      return file ? blobSize(file) : -1;
    },
    // An object like a file input, filled piece by piece, for browsers that cannot read our files.
    createFileBuffer: () => ({ __proto__: null, parts: [], file: null }),
    appendToBuffer(buffer, text) {
      listPush(buffer.parts, codec.fromBase64(text));
      buffer.file = new Blob(sequence(buffer.parts));
    },
    // Downloads held content as clickDownload() does. The browser resolves the URL at the click, so it is revoked at once.
    async download(id, start, end, name) {
      const url = agent.url(id, start, end);
      await effects.clickDownload(url, name);
      revokeObjectURL(url);
    },
    uninstall() {
      uninstalled = true;
      elicitations.forEach((answer) => answer(DECLINED));
      listForEach(undo, quietly);
      effects.unhook();
      harness?.standAside?.();
    },
  };
  return freeze(agent);
}
