// What a page object is like, without calling a capability. Evaluated in the app's page as probe({nonsense, step}):
// answers JSON {name: {value} | {threw}}. Each look has `step` milliseconds.
async ({ nonsense, step }) => {
  const seen = {};
  const plain = (value) => { try { return JSON.parse(JSON.stringify(value ?? null)); } catch { return null; } };
  const look = async (name, what) => {
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(reject, step, new Error(`no answer within ${step} ms`)); });
    try {
      seen[name] = { value: plain(await Promise.race([(async () => what())(), late])) };
    } catch (error) {
      seen[name] = { threw: String(error?.message ?? error) };
    }
    clearTimeout(timer);
  };
  const { abp } = window;
  const functions = ['initialize', 'shutdown', 'call', 'listCapabilities', 'describeCapability', 'supports', 'cancel'];
  await look('members', () => Object.fromEntries(functions.map((name) => [name, typeof abp[name]])));
  await look('protocolVersion', () => abp.protocolVersion);
  await look('app', () => abp.app);
  const greeting = {
    agent: { name: 'abp-conformance', version: '1' }, protocolVersion: '0.1',
    features: { notifications: true, progress: true, elicitation: true },
  };
  await look('initialize', () => abp.initialize(greeting));
  await look('unknown', () => abp.call(nonsense, {}, { callId: 'abp-conformance' }));
  const known = seen.initialize.value?.capabilities?.[0]?.name;
  if (typeof abp.listCapabilities === 'function') await look('list', () => abp.listCapabilities());
  if (typeof abp.describeCapability === 'function') {
    if (known) await look('describeKnown', () => abp.describeCapability(known));
    await look('describeUnknown', () => abp.describeCapability(nonsense));
  }
  if (typeof abp.supports === 'function') {
    if (known) await look('supportsKnown', () => abp.supports(known));
    await look('supportsUnknown', () => abp.supports(nonsense));
  }
  if (typeof abp.cancel === 'function') {
    await look('cancelText', () => abp.cancel(nonsense, 'a check'));
    await look('cancelObject', () => abp.cancel({ callId: nonsense, reason: 'a check' }));
  }
  await look('shutdown', () => abp.shutdown());
  await look('shutdownAgain', () => abp.shutdown());
  return JSON.stringify(seen);
}
