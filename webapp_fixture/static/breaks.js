// ?breaks=NAME,…: each breaks one rule of the protocol for as long as the page lives. For programs that check apps.

const last = 'workbench-breaks-reload';

const rules = {
  noversion: (abp) => delete abp.protocolVersion,
  noapp: (abp) => delete abp.app,
  noshutdown: (abp) => delete abp.shutdown,
  notlisted: (abp) => { abp.listCapabilities = async () => { throw new Error('no list'); }; },
  badschema: (_abp, registry) => { registry.entries.get('file.list').capability.inputSchema = { type: 'strng' }; },
  badoutputschema: (_abp, registry) => { registry.entries.get('file.list').capability.outputSchema = { required: 'files' }; },
  describe: (abp) => { abp.describeCapability = async () => ({}); },
  supports: (abp) => { abp.supports = (name) => name === 'file.list'; },
  nosupports: (abp) => delete abp.supports,
  deprecated: (_abp, registry) => { registry.entries.get('file.list').capability.deprecated = true; },
  delivery: (_abp, registry) => {
    const entry = registry.entries.get('file.list');
    registry.entries.set('clipboard.copy', { ...entry, capability: { ...entry.capability, name: 'clipboard.copy' } });
  },
  cancelearly: (abp) => {
    const { cancel } = abp;
    abp.cancel = async (...given) => {
      const answer = await cancel(...given);
      return answer.error ? { callId: given[0]?.callId ?? given[0], cancelled: false } : answer;
    };
  },
  cancelsall: (abp) => { abp.cancel = async (callId) => ({ callId: callId?.callId ?? callId, cancelled: true }); },
  cancelsnone: (abp) => { abp.cancel = async (callId) => ({ callId: callId?.callId ?? callId, cancelled: false }); },
  canceltext: (abp) => { abp.cancel = async () => 'done'; },
  cancelonce: (abp) => {
    const { cancel } = abp;
    const seen = new Set();
    abp.cancel = async (first, reason) => {
      const callId = first?.callId ?? first;
      if (seen.has(callId)) return { callId, cancelled: false };
      const answer = await cancel(callId, reason);
      if (answer.cancelled) seen.add(callId);
      return answer;
    };
  },
  undescribed: (_abp, registry) => { delete registry.entries.get('file.list').capability.description; },
  progress: (_abp, _registry, client) => {
    const { progress } = client;
    client.progress = (payload) => progress.call(client, { percent: payload.percentage, percentage: '50 %' });
  },
};

const greetings = {
  nosession: ({ sessionId, ...rest }) => rest,
  version: (greeting) => ({ ...greeting, protocolVersion: '7.0' }),
  nofeatures: ({ features, ...rest }) => rest,
  hidden: (greeting) => ({ ...greeting, capabilities: greeting.capabilities.slice(1) }),
};

const failed = (code, message) => ({ success: false, error: { code, message, retryable: false } });
const recoded = (from, to) => (answer) =>
  (from.includes(answer?.error?.code) ? { ...answer, error: { ...answer.error, code: to } } : answer);
const filesAs = (data) => (answer, name) => (name === 'file.list' ? { ...answer, data } : answer);
const detached = () => {
  const buffer = new ArrayBuffer(12);
  buffer.transfer();
  return buffer;
};
const content = btoa('twelve bytes');
const answers = {
  errortext: (answer) => (answer?.error ? { ...answer, error: answer.error.message } : answer),
  errorcode: recoded(['UNKNOWN_CAPABILITY'], 'not found!'),
  unknown: recoded(['UNKNOWN_CAPABILITY'], 'OPERATION_FAILED'),
  missing: recoded(['MISSING_PARAM'], 'OPERATION_FAILED'),
  type: recoded(['INVALID_TYPE'], 'OPERATION_FAILED'),
  gone: (answer, name) => (name === 'file.list' ? failed('NOT_SUPPORTED', 'removed') : answer),
  refuses: (answer, name) => (name === 'file.list' ? failed('INVALID_PARAMS', 'no') : answer),
  result: filesAs({ files: 'none' }),
  noencoding: filesAs({ files: [], file: { content, mimeType: 'application/octet-stream', size: 12 } }),
  nosize: filesAs({ files: [], file: { content, mimeType: 'application/octet-stream', encoding: 'base64' } }),
  nourlsize: filesAs({ files: [], file: { downloadUrl: 'data:text/plain,twelve%20bytes', mimeType: 'text/plain' } }),
  undeclared: filesAs({ files: [], file: { content, mimeType: 'application/octet-stream', encoding: 'base64', size: 12 } }),
  detached: filesAs({ files: [], get file() { return { content: detached(), mimeType: 'application/octet-stream' }; } }),
  nomime: filesAs({ files: [], file: { content: new ArrayBuffer(12), size: 12 } }),
};

/** `names` is a set of the rules to break. */
export function breakRules(abp, registry, client, names) {
  for (const name of names) rules[name]?.(abp, registry, client);
  if (!names.size) return;
  const { initialize, call, shutdown } = abp;
  let greeted = 0;
  abp.initialize = async (params) => {
    if (names.has('reload') && sessionStorage.getItem(last)) throw new Error('this tab has been here before');
    if (names.has('reload')) sessionStorage.setItem(last, 'yes');
    greeted += 1;
    if (names.has('forgetful') && greeted > 2) throw new Error('there was a session already');
    if (names.has('moody')) abp.app.id = `mood.${Date.now()}`;
    if (names.has('twice') && abp.initialized) return null;
    const greeting = await initialize(params);
    return Object.entries(greetings).reduce((made, [name, change]) => (names.has(name) ? change(made) : made), greeting);
  };
  if (names.has('shutdownonce')) {
    abp.shutdown = async () => {
      if (!abp.initialized) throw new Error('there is no session');
      return shutdown();
    };
  }
  if (abp.call) {
    abp.call = async (name, params, options) => {
      if (names.has('throws') && !registry.entries.has(name)) throw new Error(`there is no ${name}`);
      if (names.has('unready') && !abp.initialized) return { success: true, data: { early: true } };
      const answer = await call(name, params, options);
      return Object.entries(answers).reduce((made, [key, change]) => (names.has(key) ? change(made, name) : made), answer);
    };
  }
}
