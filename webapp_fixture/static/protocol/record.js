// The app's own record of what it saw, which app.record answers.

const LIMIT = 2000;
const HANDED_OUT = 20;
const LOOKED_AT = 10_000;

/** The ArrayBuffers in the first values of an answer. */
function buffersIn(answer) {
  const waiting = [answer];
  const seen = new Set();
  while (waiting.length && seen.size < LOOKED_AT) {
    const value = waiting.pop();
    if (typeof value !== 'object' || value === null || seen.has(value)) continue;
    seen.add(value);
    if (ArrayBuffer.isView(value)) waiting.push(value.buffer);
    else if (value instanceof Map || value instanceof Set) waiting.push(...value.values());
    else if (Array.isArray(value)) waiting.push(...value.slice(0, LOOKED_AT));
    // Descriptors, not values: getters are left alone.
    else for (const { value: inner } of Object.values(Object.getOwnPropertyDescriptors(value))) waiting.push(inner);
  }
  return [...seen].filter((value) => value instanceof ArrayBuffer);
}

export class Record {
  constructor(first) {
    this.first = first; // how the page was when the app's first script ran
    this.calls = [];
    this.cancelled = [];
    this.events = [];
    this.buffers = []; // ArrayBuffers that answers carried out of this frame; kept alive, which transfer makes cheap
    this.agent = null; // who is connected, if anyone
    this.listeners = new Set();
  }

  session(agent) {
    this.agent = agent;
    this.changed();
  }

  add(kind, payload) {
    this.push(this.events, { kind, payload });
  }

  call(callId, capability) {
    const entry = this.push(this.calls, { callId, capability, state: 'running' });
    return (state, duration) => {
      Object.assign(entry, { state, duration });
      this.changed();
    };
  }

  cancel(callId, reason, form) {
    this.push(this.cancelled, { callId, reason, form });
  }

  push(list, entry) {
    const stamped = { ...entry, at: Date.now() };
    list.push(stamped);
    if (list.length > LIMIT) list.shift();
    this.changed();
    return stamped;
  }

  handOut(answer) {
    if (window.parent !== window) this.buffers = [...this.buffers, ...buffersIn(answer)].slice(-HANDED_OUT);
  }

  changed() {
    for (const listener of this.listeners) listener(this);
  }

  toJSON() {
    const { calls, cancelled, events, first } = this;
    const handedOut = this.buffers.map((buffer) => buffer.byteLength); // 0 once they were transferred
    return { ...structuredClone({ calls, cancelled, events, first }), handedOut };
  }
}
