// Side effects of an app in a frame (CDP): effects.js without an agent.
// A function expression, called as embedded({inline}, effects). Returns an object whose next() resolves with the events since
// the last call, as texts, once there are any. It does not use a binding: scripts of the frame run already and would see it.
// Replies take another way, through the harness, and may be faster. So each event also sends its number to the harness, which
// it reaches before the reply to the call that it belongs to.
(config, makeEffects) => {
  "use strict";
  const MAX_WAITING = 1000; // events; the rest is left out
  const { stringify } = JSON, bytes = Blob.prototype.arrayBuffer, encode = Uint8Array.prototype.toBase64;
  const NativePromise = Promise;
  let events = [], asked = null, emitted = 0;
  const give = () => {
    if (asked === null || !events.length) return;
    const [resolve, given] = [asked, events];
    asked = null;
    events = [];
    resolve(given);
  };
  makeEffects({
    emit(kind, payload) {
      if (events.length >= MAX_WAITING) return;
      events.push(stringify([kind, payload]));
      give();
      top.postMessage({ type: "effect", payload: ++emitted }, "*");
    },
    // Content cannot be fetched later, so it is sent along if it is small.
    async hold(blob) {
      if (blob.size > config.inline) return {};
      return { base64: Reflect.apply(encode, new Uint8Array(await Reflect.apply(bytes, blob, [])), []) };
    },
    currentCall: () => null,
    prints: false,
  });
  return { __proto__: null, next: () => new NativePromise((resolve) => { asked = resolve; give(); }) };
}
