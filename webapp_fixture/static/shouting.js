// /embed/shouting, before abp-embed.js: holds back each message of the embedding page until a frame of another origin
// has been told its id and has shouted answers to it.

(() => {
  const shouterUrl = new URL('embed/shouter', document.documentElement.dataset.otherOrigin);
  const AFTER = 50; // ms: what was shouted must be there first
  let shouter = null;

  const loaded = () =>
    new Promise((resolve) => {
      const frame = document.createElement('iframe');
      frame.hidden = true;
      frame.src = shouterUrl;
      frame.onload = () => resolve(frame.contentWindow);
      document.documentElement.append(frame);
    });

  async function shout(message) {
    const shouting = await (shouter ??= loaded());
    const { port1, port2 } = new MessageChannel();
    const done = new Promise((resolve) => {
      port1.onmessage = resolve;
    });
    shouting.postMessage({ type: message.type, id: message.id }, shouterUrl.origin, [port2]);
    await done;
    await new Promise((resolve) => setTimeout(resolve, AFTER));
  }

  const heard = new WeakSet();
  window.addEventListener('message', async (event) => {
    if (event.source !== window.parent || heard.has(event)) return;
    event.stopImmediatePropagation();
    const { data, origin, source } = event;
    await shout(data);
    const again = new MessageEvent('message', { data, origin, source });
    heard.add(again);
    window.dispatchEvent(again);
  });
})();
