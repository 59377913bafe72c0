// App → client: notifications, progress and elicitation, over the functions that the client exposed on the page, or
// (page option ownevents) over the app's own abp.onProgress and so on.

const HOOKS = {
  notification: ['__abp_notification', 'onNotification'],
  progress: ['__abp_progress', 'onProgress'],
  elicitation: ['__abp_elicitation', 'onElicitation'],
  capabilitiesChanged: ['__abp_capabilities_changed', 'onCapabilitiesChanged'],
};

export class Client {
  /** `style` is '' (exposed functions), 'assign' or 'call' (own events). */
  constructor(style, record) {
    this.style = style;
    this.record = record;
    this.callbacks = {};
    this.features = {};
  }

  /** Give the abp object its own event members, if that is this page's style. */
  install(abp) {
    this.abp = abp;
    for (const [kind, [, member]] of Object.entries(HOOKS)) {
      if (this.style === 'assign') abp[member] = null;
      if (this.style === 'call') {
        this.callbacks[kind] = [];
        abp[member] = (callback) => {
          this.callbacks[kind].push(callback);
        };
      }
    }
  }

  listeners(kind) {
    const [exposed, member] = HOOKS[kind];
    if (this.style === 'call') return this.callbacks[kind];
    const listener = this.style === 'assign' ? this.abp[member] : window[exposed];
    return typeof listener === 'function' ? [listener] : [];
  }

  send(kind, payload) {
    this.record.add(kind, payload);
    for (const listener of this.listeners(kind)) {
      // A client's failing listener is not the app's failure.
      Promise.resolve()
        .then(() => listener(payload))
        .catch((error) => console.warn(`the client's ${kind} listener failed`, error));
    }
  }

  notify(event, data = {}) {
    if (this.features.notifications !== false) this.send('notification', { event, data });
  }

  progress(payload) {
    if (this.features.progress !== false) this.send('progress', payload);
  }

  capabilitiesChanged(changes) {
    this.notify('notifications/capabilities/list_changed', changes);
    this.send('capabilitiesChanged', changes);
  }

  /** Ask the client; always answers {success, data?, error?, cancelled?}. */
  async elicit(request) {
    this.record.add('elicitation', request);
    const [listener] = this.listeners('elicitation');
    if (!listener || this.features.elicitation === false) {
      const message = 'the client does not answer questions';
      return { success: false, error: { code: 'NOT_SUPPORTED', message, retryable: false } };
    }
    let timer;
    const timeout = new Promise((resolve) => {
      if (!request.timeout) return;
      const error = { code: 'TIMEOUT', message: `no answer within ${request.timeout} ms`, retryable: true };
      timer = setTimeout(resolve, request.timeout, { success: false, error });
    });
    const answer = Promise.resolve()
      .then(() => listener(request))
      .catch((thrown) => {
        const message = String(thrown?.message ?? thrown);
        return { success: false, error: { code: 'OPERATION_FAILED', message, retryable: false } };
      });
    const response = (await Promise.race([answer, timeout])) ?? { success: false, cancelled: true };
    clearTimeout(timer);
    this.record.add('elicitationAnswer', response);
    return response;
  }
}
