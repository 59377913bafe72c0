// The object that becomes window.abp: the session around the calls.

import { AbpError } from './errors.js';

const PROTOCOL_VERSION = '0.1';
const FEATURES = { notifications: true, progress: true, elicitation: true, dynamicCapabilities: true };

function checkInitialize(params) {
  if (typeof params?.agent?.name !== 'string') {
    throw new AbpError('MISSING_PARAM', 'initialize needs agent: {name, version}');
  }
  const version = params.protocolVersion;
  if (version !== undefined && String(version).split('.')[0] !== PROTOCOL_VERSION.split('.')[0]) {
    throw new AbpError('NOT_SUPPORTED', `protocol version ${version} is not supported; this app speaks ${PROTOCOL_VERSION}`);
  }
}

function notInitialized() {
  const error = new AbpError('NOT_INITIALIZED', 'call initialize first', { retryable: true });
  return { success: false, error: error.toJSON() };
}

/** `parts` is {app, registry, calls, client, options, onSession}. */
export function createAbp({ app, registry, calls, client, options, onSession = () => {} }) {
  let sessionId = null;
  const { id, name, version } = app;
  const abp = {
    protocolVersion: PROTOCOL_VERSION,
    app: { id, name, version },
    get initialized() {
      return sessionId !== null;
    },
    get sessionId() {
      return sessionId;
    },

    async initialize(params = {}) {
      if (options.initfails) throw new Error('initialize fails on this page');
      if (sessionId) throw new AbpError('ALREADY_INITIALIZED', 'there is a session already; call shutdown first');
      checkInitialize(params);
      sessionId = crypto.randomUUID();
      client.features = params.features ?? {};
      onSession(params.agent);
      const capabilities = registry.list().map(({ name, available, experimental, deprecated }) => ({
        name,
        available,
        ...(experimental ? { experimental } : {}),
        ...(deprecated ? { deprecated } : {}),
      }));
      return { sessionId, protocolVersion: PROTOCOL_VERSION, app: { ...abp.app }, capabilities, features: { ...FEATURES } };
    },

    async shutdown() {
      calls.cancelAll('shutdown');
      sessionId = null;
      onSession(null);
      return { success: true };
    },

    async call(capability, params, callOptions) {
      if (!sessionId) return { ...notInitialized(), metadata: { duration: 0 } };
      return calls.call(capability, params, callOptions);
    },

    async listCapabilities() {
      if (options.emptylist) return [];
      const list = registry.list();
      return options.wrappedlist ? { success: true, data: list } : list;
    },
    async describeCapability(capability) {
      return registry.describe(capability);
    },
    async supports(name) {
      const entry = registry.entries.get(name);
      if (!entry) return { supported: false, available: false, reason: `unknown capability ${name}` };
      const { available, requirements, features } = entry.capability;
      return { supported: true, available, requirements, features };
    },
    async cancel(callId, reason) {
      return sessionId ? calls.cancel(callId, reason) : notInitialized();
    },

    notify: (event, data) => client.notify(event, data),
    notifyProgress: (payload) => client.progress(payload),
    elicit: (request) => client.elicit(request),
  };
  client.install(abp);
  if (options.half) delete abp.call;
  return abp;
}
