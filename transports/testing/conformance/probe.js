// What a page object is like. Evaluated in the app's page as probe({nonsense, step, lasting}): answers JSON
// {name: {value} | {threw}}. Each look has `step` milliseconds; `lasting` is a call that may be cancelled, or null.
async ({ nonsense, step, lasting }) => {
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
  if (lasting && typeof abp.cancel === 'function') {
    const call = Promise.resolve(abp.call(lasting.name, lasting.params, { callId: 'lasting', timeout: lasting.timeout }));
    let ended = false;
    call.then(() => { ended = true; }, () => { ended = true; });
    await new Promise((resolve) => setTimeout(resolve, lasting.after));
    if (!ended) {
      await look('cancelRunning', () => abp.cancel('lasting', 'a check'));
      if (seen.cancelRunning.value?.cancelled !== true) {
        await look('cancelRunning', () => abp.cancel({ callId: 'lasting', reason: 'a check' }));
        await look('cancelAgain', () => abp.cancel({ callId: 'lasting', reason: 'a check' }));
      } else await look('cancelAgain', () => abp.cancel('lasting', 'a check'));
    }
  }
  await look('shutdown', () => abp.shutdown());
  await look('shutdownAgain', () => abp.shutdown());
  return JSON.stringify(seen);
}
