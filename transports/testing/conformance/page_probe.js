// Inspection of the page object. Evaluated in the app's page as probe({unknownName, stepTimeout, longCall}). Returns JSON
// text {step: {value} | {threw}}. Each step has `stepTimeout` milliseconds. `longCall` is a call to cancel, or null.
async ({ unknownName, stepTimeout, longCall }) => {
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
  if (longCall && typeof abp.cancel === 'function') {
    const options = { callId: 'long-call', timeout: longCall.timeout };
    const call = Promise.resolve(abp.call(longCall.name, longCall.params, options));
    let ended = false;
    call.then(() => { ended = true; }, () => { ended = true; });
    await new Promise((resolve) => setTimeout(resolve, longCall.after));
    if (!ended) {
      // Apps may support one form of cancel only: the second form is tried if the first had no effect.
      await step('cancelRunning', () => abp.cancel('long-call', 'a check'));
      if (steps.cancelRunning.value?.cancelled !== true) {
        await step('cancelRunning', () => abp.cancel({ callId: 'long-call', reason: 'a check' }));
        await step('cancelAgain', () => abp.cancel({ callId: 'long-call', reason: 'a check' }));
      } else await step('cancelAgain', () => abp.cancel('long-call', 'a check'));
      if (steps.cancelRunning.value?.cancelled !== true) delete steps.cancelAgain; // nothing was cancelled
    }
  }
  await step('shutdown', () => abp.shutdown());
  await step('shutdownAgain', () => abp.shutdown());
  return JSON.stringify(steps);
}
