// The page object window.abp: sessions, and calls with their checks, progress, questions, cancellation and deadlines. It
// knows nothing of what the app does.

const PROTOCOL_VERSION = '0.1';
const FEATURES = { notifications: true, progress: true, elicitation: true, dynamicCapabilities: false };

/** An error that the client is told: a code in upper case, and a message that says what to do. */
export class AppError extends Error {
  constructor(code, message, retryable = false) {
    super(message);
    Object.assign(this, { code, retryable });
  }
}

function failure(error) {
  if (!(error instanceof AppError)) console.error(error);
  const { code = 'OPERATION_FAILED', message, retryable = false } = error;
  return { success: false, error: { code, message, retryable } };
}

const newId = () => crypto.getRandomValues(new Uint32Array(4)).join('-');
const notify = (event, data) => window.__abp_notification?.({ event, data });

/** Ask the client. Answers the data of its answer, or null if it declines or cannot answer. */
async function ask(method, params, timeout = 60_000) {
  const answer = await window.__abp_elicitation?.({ method, params, timeout });
  return answer?.success ? answer.data : null;
}

/** Check what inputSchema says of types and limits. A library such as Ajv checks all of JSON Schema. */
function checkParams({ required = [], properties = {} }, params) {
  for (const name of required) {
    if (params[name] === undefined) throw new AppError('MISSING_PARAM', `${name} is required`);
  }
  for (const [name, value] of Object.entries(params)) {
    const { type, minimum = -Infinity, maximum = Infinity, minLength = 0, maxLength = Infinity } = properties[name] ?? {};
    const fits = type === 'integer' ? Number.isInteger(value) : !type || typeof value === type;
    if (!fits) throw new AppError('INVALID_TYPE', `${name} must be of the type ${type}`);
    if (value < minimum || value > maximum || value?.length < minLength || value?.length > maxLength) {
      throw new AppError('INVALID_PARAMS', `${name} is outside of the limits in inputSchema`);
    }
  }
}

/** Define window.abp. `handlers` has a function (params, {signal, progress, ask, notify}) for each capability. */
export function publish({ app, capabilities }, handlers) {
  const listed = capabilities.map((capability) => ({ requirements: [], features: {}, ...capability, available: true }));
  const find = (name) => listed.find((capability) => capability.name === name) ?? null;
  const running = new Map(); // callId → AbortController
  const cancelled = new Set(); // callIds of this session: cancelling again has the same answer
  let sessionId = null;

  const stop = (callId, error) => {
    if (running.has(callId)) cancelled.add(callId);
    running.get(callId)?.abort(error);
    return cancelled.has(callId);
  };
  const stopAll = () => {
    for (const callId of running.keys()) stop(callId, new AppError('CANCELLED', 'the session has ended'));
  };

  window.abp = {
    protocolVersion: PROTOCOL_VERSION,
    app,
    async initialize() {
      stopAll();
      sessionId = newId();
      const names = listed.map(({ name, available }) => ({ name, available }));
      return { sessionId, protocolVersion: PROTOCOL_VERSION, app, capabilities: names, features: FEATURES };
    },
    async shutdown() {
      stopAll();
      cancelled.clear();
      sessionId = null;
      return { success: true };
    },
    async listCapabilities() { return listed; },
    async describeCapability(name) { return find(name); },
    async supports(name) { return { supported: find(name) !== null, available: find(name) !== null }; },
    async cancel(first, reason) {
      if (!sessionId) return failure(new AppError('NOT_INITIALIZED', 'call initialize first', true));
      const callId = first?.callId ?? first; // cancel(callId, reason) and cancel({callId, reason})
      const why = `cancelled: ${first?.reason ?? reason ?? 'no reason was given'}`;
      return { callId, cancelled: stop(callId, new AppError('CANCELLED', why)) };
    },
    async call(name, params, options) {
      const { callId = newId(), progressToken = callId, timeout } = options ?? {};
      const controller = new AbortController();
      const { signal } = controller;
      const stopped = new Promise((_, reject) => { signal.onabort = () => reject(signal.reason); });
      const late = new AppError('TIMEOUT', `it takes longer than ${timeout} ms`, true);
      const timer = timeout && setTimeout(() => controller.abort(late), timeout);
      const progress = (done, total, status) => window.__abp_progress?.({
        operationId: progressToken, progress: done, total, percentage: (100 * done) / total, status,
      });
      running.set(callId, controller);
      try {
        if (!sessionId) throw new AppError('NOT_INITIALIZED', 'call initialize first', true);
        if (!find(name)) throw new AppError('UNKNOWN_CAPABILITY', `unknown capability ${name}`);
        checkParams(find(name).inputSchema, params ?? {});
        const work = handlers[name](params ?? {}, { signal, progress, ask, notify });
        return { success: true, data: await Promise.race([work, stopped]) };
      } catch (error) {
        return { ...failure(error), cancelled: signal.aborted };
      } finally {
        clearTimeout(timer);
        running.delete(callId);
      }
    },
  };
}
