// Calls in flight: identity, timeout, progress, cancellation, and the answer's envelope.

import { AbpError, Cancelled, RawAnswer, describeError } from './errors.js';

const REMEMBERED = 1000; // cancelled calls whose cancellation is answered the same way again

/** What a handler may use of a progress report: {progress, total?, status?, stage?, estimatedRemaining?}. */
function progressPayload(operationId, report) {
  const percentage = report.total ? Math.round((report.progress / report.total) * 1000) / 10 : undefined;
  return JSON.parse(JSON.stringify({ operationId, percentage, ...report }));
}

export class Calls {
  constructor(registry, client, record, cancelForm) {
    Object.assign(this, { registry, client, record, cancelForm });
    this.running = new Map();
    this.cancelled = new Map();
  }

  context(callId, operationId, signal) {
    return {
      callId,
      signal,
      progress: (report) => {
        if (!signal.aborted) this.client.progress(progressPayload(operationId, report));
      },
      notify: (event, data) => this.client.notify(event, data),
      elicit: (request) => this.client.elicit(request),
    };
  }

  async call(name, params = {}, options = {}) {
    const started = performance.now();
    const { timeout, progressToken, callId = crypto.randomUUID() } = options ?? {};
    if (this.running.has(callId)) {
      const error = new AbpError('INVALID_PARAMS', `callId ${callId} belongs to a call that is still running`);
      return { success: false, error: error.toJSON(), metadata: { duration: 0 } };
    }
    const controller = new AbortController();
    const finish = this.record.call(callId, name);
    this.running.set(callId, controller);
    const timer = timeout > 0 ? setTimeout(() => controller.abort('timeout'), timeout) : undefined;
    const { signal } = controller;
    const answer = await this.settle(name, params, this.context(callId, progressToken ?? callId, signal), timeout);
    clearTimeout(timer);
    this.running.delete(callId);
    this.record.handOut(answer instanceof RawAnswer ? answer.value : answer);
    const duration = Math.round((performance.now() - started) * 10) / 10;
    if (answer instanceof RawAnswer) {
      finish('raw', duration);
      return answer.value;
    }
    finish(answer.cancelled ? 'cancelled' : answer.success ? 'succeeded' : 'failed', duration);
    return { ...answer, metadata: { duration } };
  }

  async settle(name, params, context, timeout) {
    const { signal } = context;
    const aborted = new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(new Cancelled(signal.reason)));
    });
    aborted.catch(() => {}); // a call that ignores cancellation leaves it unhandled
    try {
      const work = this.registry.run(name, params ?? {}, context);
      const ignoresCancel = this.registry.entries.get(name)?.capability.features.ignoresCancel;
      const data = await (ignoresCancel ? work : Promise.race([work, aborted]));
      return data instanceof RawAnswer ? data : { success: true, data };
    } catch (thrown) {
      if (signal.aborted && signal.reason === 'timeout') {
        const error = new AbpError('TIMEOUT', `${name} took longer than ${timeout} ms`, { retryable: true });
        return { success: false, error: error.toJSON(), cancelled: true };
      }
      if (signal.aborted || thrown instanceof Cancelled) return { success: false, cancelled: true };
      return { success: false, error: describeError(thrown) };
    }
  }

  /** cancel(callId, reason) and cancel({callId, reason}), unless the page takes only one of the two. */
  cancel(first, second) {
    const form = typeof first === 'object' && first !== null ? 'object' : 'string';
    let [callId, reason] = form === 'object' ? [first.callId, first.reason] : [first, second];
    if (this.cancelForm && this.cancelForm !== form) callId = undefined; // as an app that reads the other form
    this.record.cancel(callId, reason, form);
    if (this.cancelled.has(callId)) return { ...this.cancelled.get(callId) };
    const controller = this.running.get(callId);
    if (!controller || controller.signal.aborted) return { callId, cancelled: false };
    const answer = { callId, cancelled: true, ...(reason === undefined ? {} : { reason }) };
    this.cancelled.set(callId, answer);
    if (this.cancelled.size > REMEMBERED) this.cancelled.delete(this.cancelled.keys().next().value);
    controller.abort(reason ?? 'cancelled');
    return { ...answer };
  }

  cancelAll(reason) {
    for (const controller of this.running.values()) controller.abort(reason);
  }
}
