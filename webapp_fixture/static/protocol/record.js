// The app's own record of what it saw, which app.record answers.

const LIMIT = 2000;

export class Record {
  constructor(first) {
    this.first = first; // how the page was when the app's first script ran
    this.calls = [];
    this.cancelled = [];
    this.events = [];
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
    const kept = { ...entry, at: Date.now() };
    list.push(kept);
    if (list.length > LIMIT) list.shift();
    this.changed();
    return kept;
  }

  changed() {
    for (const listener of this.listeners) listener(this);
  }

  toJSON() {
    const { calls, cancelled, events, first } = this;
    return structuredClone({ calls, cancelled, events, first });
  }
}
