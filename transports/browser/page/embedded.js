// Side effects of an app in a frame that has a process of its own: effects.js without an agent.
// A function expression, called as embedded({binding, inline}, effects).
(config, makeEffects) => {
  "use strict";
  const send = globalThis[config.binding];
  delete globalThis[config.binding];
  const { stringify } = JSON, bytes = Blob.prototype.arrayBuffer, encode = Uint8Array.prototype.toBase64;
  makeEffects({
    emit: (kind, payload) => send(stringify([kind, payload])),
    // Content cannot be fetched later, so it is sent along if it is small.
    async hold(blob) {
      if (blob.size > config.inline) return {};
      return { base64: Reflect.apply(encode, new Uint8Array(await Reflect.apply(bytes, blob, [])), []) };
    },
    currentCall: () => null,
    prints: false,
  });
}
