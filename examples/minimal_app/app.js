// A complete app that speaks ABP: one capability, with the checks of its parameters and its errors.
const app = { id: 'example.badges', name: 'Badge maker', version: '1.0.0' };
const capability = {
  name: 'badge.make', description: 'A badge as an SVG picture', available: true, requirements: [], features: {},
  inputSchema: {
    type: 'object', required: ['label'],
    properties: { label: { type: 'string', minLength: 1, maxLength: 40 }, colour: { type: 'string', pattern: '^#[0-9a-f]{6}$' } },
  },
  outputSchema: {
    type: 'object', required: ['badge'],
    properties: { badge: { required: ['mimeType'], properties: { content: {}, mimeType: { const: 'image/svg+xml' }, size: {} } } },
  },
};
const fail = (code, message, more = {}) => ({ success: false, error: { code, message, retryable: false, ...more } });
const escapeXml = (text) => text.replace(/[<>&"]/g, (char) => `&#${char.charCodeAt(0)};`);
let sessionId = null;

function makeBadge({ label, colour = '#336699' } = {}) {
  if (label === undefined) return fail('MISSING_PARAM', 'label is required');
  if (typeof label !== 'string' || typeof colour !== 'string') return fail('INVALID_TYPE', 'label and colour are text');
  if (!/^.{1,40}$/u.test(label) || !/^#[0-9a-f]{6}$/.test(colour)) return fail('INVALID_PARAMS', 'see inputSchema');
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="200" height="40"><rect width="200" height="40" fill="${colour}"/>` +
    `<text x="100" y="26" text-anchor="middle" fill="#fff">${escapeXml(label)}</text></svg>`;
  const content = new TextEncoder().encode(svg).buffer;
  return { success: true, data: { badge: { content, mimeType: 'image/svg+xml', size: content.byteLength, filename: 'badge.svg' } } };
}

window.abp = {
  protocolVersion: '0.1', app,
  async initialize() {
    sessionId = crypto.randomUUID();
    const features = { notifications: false, progress: false, elicitation: false, dynamicCapabilities: false };
    return { sessionId, protocolVersion: '0.1', app, capabilities: [{ name: capability.name, available: true }], features };
  },
  async shutdown() { sessionId = null; return { success: true }; },
  async listCapabilities() { return [capability]; },
  async supports(name) { return { supported: name === capability.name, available: name === capability.name }; },
  async call(name, params) {
    if (!sessionId) return fail('NOT_INITIALIZED', 'call initialize first', { retryable: true });
    if (name !== capability.name) return fail('UNKNOWN_CAPABILITY', `there is no ${name}`, { alternatives: [capability.name] });
    return makeBadge(params);
  },
  async cancel(first) {
    if (!sessionId) return fail('NOT_INITIALIZED', 'call initialize first', { retryable: true });
    return { callId: first?.callId ?? first, cancelled: false }; // every call ends at once
  },
};
