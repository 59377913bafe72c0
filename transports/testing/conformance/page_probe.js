// Inspection of the page object. Evaluated in the app's page as probe({unknownName, stepTimeout}). Returns JSON text
// {step: {value} | {threw}}. Each step has `stepTimeout` milliseconds.
async ({ unknownName, stepTimeout }) => {
  const steps = {};
  const asJson = (value) => { try { return JSON.parse(JSON.stringify(value ?? null)); } catch { return null; } };
  const step = async (name, action) => {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(reject, stepTimeout, new Error(`no answer within ${stepTimeout} ms`));
    });
    try {
      steps[name] = { value: asJson(await Promise.race([(async () => action())(), late])) };
    } catch (error) {
      steps[name] = { threw: String(error?.message ?? error) };
    }
    clearTimeout(timer);
  };
  const { abp } = window;
  const functions = ['initialize', 'shutdown', 'call', 'listCapabilities', 'describeCapability', 'supports', 'cancel'];
  await step('members', () => Object.fromEntries(functions.map((name) => [name, typeof abp[name]])));
  await step('protocolVersion', () => abp.protocolVersion);
  await step('app', () => abp.app);
  await step('adapter', () => abp.adapter);
  const params = {
    agent: { name: 'abp-conformance', version: '1' }, protocolVersion: '0.1',
    features: { notifications: true, progress: true, elicitation: true },
  };
  if (typeof abp.cancel === 'function') await step('cancelEarly', () => abp.cancel(unknownName, 'a check'));
  await step('initialize', () => abp.initialize(params));
  await step('unknown', () => abp.call(unknownName, {}, { callId: 'abp-conformance' }));
  const known = steps.initialize.value?.capabilities?.[0]?.name;
  if (typeof abp.listCapabilities === 'function') await step('list', () => abp.listCapabilities());
  if (typeof abp.describeCapability === 'function') {
    if (known) await step('describeKnown', () => abp.describeCapability(known));
    await step('describeUnknown', () => abp.describeCapability(unknownName));
  }
  if (typeof abp.supports === 'function') {
    if (known) await step('supportsKnown', () => abp.supports(known));
    await step('supportsUnknown', () => abp.supports(unknownName));
  }
  if (typeof abp.cancel === 'function') {
    await step('cancelText', () => abp.cancel(unknownName, 'a check'));
    await step('cancelObject', () => abp.cancel({ callId: unknownName, reason: 'a check' }));
  }
  await step('shutdown', () => abp.shutdown());
  await step('shutdownAgain', () => abp.shutdown());
  return JSON.stringify(steps);
}
