// abp-embed.js: lets the page that embeds your app in an <iframe> drive its window.abp, over postMessage.
//
// Include it as a classic script before all others of your app, and say who may drive it:
//
//   <script src="/abp-embed.js" data-origins="https://agent.example https://tools.example"></script>
//
// data-origins: the origins that may, separated by spaces; * lets any page do it; without it nobody may. In a page that
// is not framed the script does nothing. Your app needs no change: it has window.abp, and it calls __abp_notification,
// __abp_progress, __abp_elicitation, __abp_capabilities_changed, or has its own abp.onProgress and so on.
//
// Buffers in an answer are transferred: they are empty in your app afterwards. Answer a copy of what you want to keep.

(() => {
  'use strict';
  const { parent, document } = window;
  if (parent === window) return;
  const named = (document.currentScript?.dataset.origins ?? '').split(/\s+/);
  const origins = new Set(named.map((origin) => origin.replace(/\/$/, '')));
  const GRACE = 5000; // ms that window.abp may take to appear once the page has loaded
  const CANCEL_WITHIN = 400; // ms that the app gets for each form of cancel
  const TWINS = 100; // ms within which the same event by another way is the same event
  const MAX_DEPTH = 1000; // levels of an answer: what is deeper may pass here and fail at the receiver

  // Natives as they are now: what the app replaces later is its own affair.
  const post = parent.postMessage.bind(parent);
  const later = setTimeout.bind(window), warn = console.warn.bind(console, 'abp-embed:');
  const uncurried = (method) => Function.prototype.call.bind(method);
  const has = uncurried(Set.prototype.has), add = uncurried(Set.prototype.add);
  const get = uncurried(Map.prototype.get), set = uncurried(Map.prototype.set);
  const remove = uncurried(Map.prototype.delete), eachEntry = uncurried(Map.prototype.forEach);
  const eachMember = uncurried(Set.prototype.forEach), eachItem = uncurried(Array.prototype.forEach);
  const is = (Type, property) => {
    const brand = uncurried(Object.getOwnPropertyDescriptor(Type.prototype, property).get);
    return (value) => {
      try { brand(value); return true; } catch { return false; }
    };
  };
  const isMap = is(Map, 'size'), isSet = is(Set, 'size');
  const isBuffer = is(ArrayBuffer, 'byteLength'), isNode = is(Node, 'nodeType');
  const { isView } = ArrayBuffer, { isArray } = Array, { keys, getPrototypeOf, prototype: plain } = Object;
  const { stringify } = JSON, { now } = Date;
  const SafeSet = Set, SafeMap = Map, SafePromise = Promise, SafeError = Error, text = String;
  const random = Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join('');

  const failure = (code, message, retryable = false) => ({ success: false, error: { code, message, retryable } });
  const described = (thrown) => {
    try {
      const code = typeof thrown?.code === 'string' && thrown.code ? thrown.code : 'OPERATION_FAILED';
      return failure(code, text(thrown?.message || thrown), thrown?.retryable === true);
    } catch {
      return failure('OPERATION_FAILED', 'the app threw something that cannot be read');
    }
  };
  const attempt = async (work) => {
    try { return await work(); } catch (thrown) { return described(thrown); }
  };
  const within = (milliseconds, work) =>
    new SafePromise((resolve, reject) => {
      later(resolve, milliseconds);
      (async () => {
        try { resolve(await work()); } catch (error) { reject(error); }
      })();
    });

  // --- posting ------------------------------------------------------------------------------------------------------

  /** Every buffer that can be transferred, each once. Level by level: an answer may be deeper than the stack. */
  function buffersIn(answer) {
    const seen = new SafeSet(), found = [];
    for (let level = typeof answer === 'object' && answer !== null ? [answer] : [], depth = 0; level.length; depth += 1) {
      if (depth > MAX_DEPTH) throw new SafeError(`it is nested more than ${MAX_DEPTH} levels deep`);
      const next = [];
      const visit = (value) => {
        if (typeof value === 'object' && value !== null) next[next.length] = value;
      };
      for (let at = 0; at < level.length; at += 1) {
        const value = level[at];
        if (has(seen, value)) continue;
        add(seen, value);
        const kind = getPrototypeOf(value);
        const own = () => eachItem(keys(value), (key) => visit(value[key]));
        if (isArray(value)) eachItem(value, visit);
        else if (kind === plain || kind === null) own();
        else if (isView(value)) visit(value.buffer);
        else if (isBuffer(value)) {
          if (value.byteLength > 0) found[found.length] = value; // 0: detached, or nothing to gain
        } else if (isMap(value)) eachEntry(value, (inner, key) => { visit(key); visit(inner); });
        else if (isSet(value)) eachMember(value, visit);
        else if (!isNode(value)) own(); // a node cannot be cloned, and all that hangs on it is large
      }
      level = next;
    }
    return found;
  }

  const envelope = (type, id, payload) => ({ type, ...(id === undefined ? {} : { id }), timestamp: now(), payload });

  function transfer(message, origin) {
    const buffers = buffersIn(message.payload);
    try {
      post(message, origin, buffers);
    } catch (error) {
      if (!buffers.length) throw error;
      post(message, origin); // WebAssembly's memory, for one, can be copied and not transferred
    }
  }

  /** A reply always goes: if not the answer, then why it could not. */
  function reply(origin, type, id, payload) {
    try {
      transfer(envelope(type, id, payload), origin);
    } catch (error) {
      const why = `the answer cannot be posted to the embedding page (${described(error).error.message})`;
      const refusal = failure('OPERATION_FAILED', `${why}; answer plain data, buffers and Blobs only, and of reactive data a copy`);
      post(envelope(type, id, refusal), origin);
    }
  }

  // --- app → host --------------------------------------------------------------------------------------------------

  let session = null; // {origin} from initialize to shutdown
  const questions = new SafeMap(); // id → what resolves an elicitation
  let asked = 0;

  const settle = (id, response) => {
    const resolve = get(questions, id);
    remove(questions, id);
    resolve?.(typeof response === 'object' && response !== null ? response : { success: false, cancelled: true });
  };

  function tell(type, payload) {
    try {
      if (session) post(envelope(type, undefined, payload), session.origin);
    } catch (error) {
      warn(`a ${type} could not be posted:`, error);
    }
  }

  function ask(request) {
    const id = `${random}-${(asked += 1)}`;
    return new SafePromise((resolve) => {
      set(questions, id, resolve);
      try {
        if (session) post(envelope('elicitation/request', id, request), session.origin);
        else settle(id, failure('NOT_INITIALIZED', 'no page drives this app now', true));
        const { timeout } = request;
        if (timeout > 0) later(() => settle(id, failure('TIMEOUT', `no answer within ${timeout} ms`, true)), timeout);
      } catch (error) {
        settle(id, described(error));
      }
    });
  }

  // An app may say the same by several ways (a page function, its own event, a notification about its capabilities): it
  // is one event if it comes by another way and at once.
  const last = new SafeMap(); // kind → {text, at, ways, outcome}
  function once(kind, way, payload, deliver) {
    let said;
    try { said = stringify(payload); } catch { return deliver(); } // a cycle, say
    const before = get(last, kind), at = now();
    if (before && before.said === said && at - before.at < TWINS && !has(before.ways, way)) {
      add(before.ways, way);
      return before.outcome;
    }
    const event = { said, at, ways: add(new SafeSet(), way), outcome: deliver() };
    set(last, kind, event);
    return event.outcome;
  }

  const notification = (way) => (payload) => once('notification', way, payload, () => tell('notification', payload));
  const deliveries = {
    onNotification: notification,
    onProgress: (way) => (payload) => once('progress', way, payload, () => tell('progress', payload)),
    onElicitation: (way) => async (request) => once('elicitation', way, request, () => ask(request)),
    onCapabilitiesChanged: (way) => (changes) =>
      notification(`${way} changes`)({ event: 'notifications/capabilities/list_changed', data: changes }),
  };
  window.__abp_notification = deliveries.onNotification('page');
  window.__abp_progress = deliveries.onProgress('page');
  window.__abp_notify = deliveries.onNotification('guide'); // this and the next are names in samples of the guides
  window.__abpOnProgress = deliveries.onProgress('guide');
  window.__abp_elicitation = deliveries.onElicitation('page');
  window.__abp_capabilities_changed = deliveries.onCapabilitiesChanged('page');

  const heard = new WeakSet(), isHeard = uncurried(WeakSet.prototype.has), hear = uncurried(WeakSet.prototype.add);
  const members = keys(deliveries);
  function listen(abp) {
    if (isHeard(heard, abp)) return;
    hear(heard, abp);
    eachItem(members, (name) => {
      const deliver = deliveries[name]('own');
      try {
        if (typeof abp[name] === 'function') abp[name](deliver);
        else if (abp[name] === undefined || abp[name] === null) abp[name] = deliver;
      } catch { /* frozen, or a getter that throws: then the app uses the page functions */ }
    });
  }

  // --- host → app --------------------------------------------------------------------------------------------------

  async function arrive() {
    for (let loadedAt = null; ;) {
      let lack = '';
      try {
        const { abp } = window;
        if (abp === undefined || abp === null) lack = 'this page has no window.abp';
        else if (typeof abp.initialize !== 'function') lack = 'window.abp has no initialize()';
        else if (typeof abp.call !== 'function') lack = 'window.abp has no call()';
        else return abp;
      } catch (error) {
        lack = `reading window.abp throws (${described(error).error.message})`;
      }
      if (document.readyState === 'complete') loadedAt ??= now();
      if (loadedAt !== null && now() - loadedAt >= GRACE) {
        throw { code: 'NOT_SUPPORTED', message: `${lack}, ${GRACE / 1000} s after it loaded` };
      }
      await new SafePromise((resolve) => { later(resolve, 20); });
    }
  }

  let arriving = null;
  const ready = async () => {
    const mine = (arriving ??= arrive()); // one wait for all, so that messages stay in order
    try { return await mine; } finally { if (arriving === mine) arriving = null; }
  };

  let begun = new SafeSet(); // ids of initialize: a host repeats it until the page is there to answer
  const handlers = {
    __proto__: null,
    async initialize(origin, { id, payload }) {
      if (id !== undefined && has(begun, id)) return;
      add(begun, id);
      session = { origin };
      reply(origin, 'initialize-result', id, await attempt(async () => {
        const abp = await ready();
        listen(abp);
        return abp.initialize(payload);
      }));
    },
    async 'capabilities/call'(origin, { id, payload }) {
      reply(origin, 'capabilities/call-result', id, await attempt(async () => {
        const { capability, params, options } = payload;
        return (await ready()).call(capability, params, options);
      }));
    },
    // Both documented forms: some apps take one, some the other.
    async 'capabilities/cancel'(origin, { id, payload }) {
      const { callId, reason } = payload ?? {};
      let answer = { callId, cancelled: false };
      for (const parameters of [[callId, reason], [{ callId, reason }]]) {
        const said = await attempt(async () => {
          const abp = await ready();
          return within(CANCEL_WITHIN, () => abp.cancel(...parameters));
        });
        if (said?.cancelled === true) {
          answer = said;
          break;
        }
      }
      reply(origin, 'capabilities/cancel-result', id, answer);
    },
    'elicitation/response': (_origin, { id, payload }) => settle(id, payload),
    async shutdown(_origin, { payload }) {
      const ending = session;
      begun = new SafeSet();
      const outcome = await attempt(async () => window.abp?.shutdown?.(payload));
      if (outcome?.error) warn('shutdown failed:', outcome.error.message);
      eachEntry(questions, (_resolve, id) => settle(id, { success: false, cancelled: true }));
      if (session === ending) session = null;
    },
  };

  const warned = new SafeSet();
  const warnOnce = (message) => {
    if (!has(warned, message)) warn(message);
    add(warned, message);
  };
  window.addEventListener('message', (event) => {
    const { source, origin, data } = event;
    if (source !== parent || typeof data !== 'object' || data === null || typeof data.type !== 'string') return;
    // A page without an origin (sandboxed, or a file) cannot be answered but by '*', which anybody could read.
    if (origin === 'null' || !(has(origins, '*') || has(origins, origin))) {
      warnOnce(`messages from ${origin} are refused: data-origins does not allow it`);
    } else if (handlers[data.type]) {
      handlers[data.type](origin, data);
    } else {
      warnOnce('a message of an unknown type is ignored');
    }
  });
})();
