// Side effects of an app in a frame (CDP): effects.js without an agent.
// A function expression, called as embedded({inline}, natives, codec, effects). Returns an object whose next() resolves with
// the events since the last call, as texts, once there are any. It does not use a binding: scripts of the frame run already
// and would see it. Replies take another way, through the harness, and may be faster. So each event also sends its number to
// the harness, which it reaches before the reply to the call that it belongs to.
(config, makeNatives, makeCodec, makeEffects) => {
  "use strict";
  const MAX_WAITING = 1000; // events; the rest is left out
  const natives = makeNatives(true), { toJson } = makeCodec(natives);
  const { Promise, Uint8Array, blobArrayBuffer, blobSize, bytesToBase64, listPush, postMessage } = natives;
  let events = [], asked = null, emitted = 0;
  const give = () => {
    if (asked === null || !events.length) return;
    const resolve = asked, texts = events;
    asked = null;
    events = [];
    resolve(texts);
  };
  makeEffects({
    natives,
    toJson,
    emit(kind, payload) {
      if (events.length >= MAX_WAITING) return;
      listPush(events, toJson([kind, payload]));
      give();
      emitted += 1;
      postMessage(window.top, { type: "effect", payload: emitted }, "*");
    },
    // Content cannot be fetched later, so it is sent along if it is small.
    async hold(blob) {
      if (blobSize(blob) > config.inline) return {};
      return { base64: bytesToBase64(new Uint8Array(await blobArrayBuffer(blob))) };
    },
    currentCall: () => null,
    startingCall: () => null,
    isUnderWay: () => false,
    within: (_, run) => run(),
    prints: false,
  });
  return { __proto__: null, next: () => new Promise((resolve) => { asked = resolve; give(); }) };
}
