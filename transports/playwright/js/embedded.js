// Side effects of an app in a frame (CDP): effects.js without an agent.
// A function expression, called as embedded({inline}, natives, codec, effects). Returns an object whose next() resolves with
// the events since the last call, as texts, once there are any. It does not use a binding: scripts of the frame run already
// and would see it. Replies take another way, through the harness, and may be faster. So each event also sends its number to
// the harness, which it reaches before the reply to the call that it belongs to.
(config, makeNatives, makeCodec, makeEffects) => {
  "use strict";
  const MAX_WAITING = 1000; // events; the rest is left out
  const natives = makeNatives(true), { toJson } = makeCodec(natives);
  const {
    Map, MessageChannel, Promise, Uint8Array, blobArrayBuffer, blobSize, bytesToBase64, channelPort1, channelPort2, clock,
    currentEvent, isForeign, lastKey, listPush, messageData, messageSource, portStart, postMessage, quietly, sequence,
    targetAddEventListener,
  } = natives;
  const tellHarness = (message, transfer = []) => postMessage(window.top, message, "*", sequence(transfer));
  // The harness asks here for the end of a call: in a message of the window, the app would see the question.
  const channel = isForeign(MessageChannel) ? null : new MessageChannel();

  // --- calls: agent.js knows those of an app in its page, here they are in messages of the harness --------------------
  const calls = new Map(); // id of a call under way → when it began
  let starting = null;     // the call whose code is running
  const callOf = (event) => quietly(() => {
    if (messageSource(event) !== window.top) return null;
    const { type, id } = messageData(event);
    return type === "capabilities/call" ? id : null;
  }) ?? null;
  const begin = (call) => {
    if (channel && call !== null && !calls.has(call)) calls.set(call, clock());
    return call;
  };
  // The app's listener, which was there first, calls the handler.
  const handledCall = () => begin(callOf(currentEvent()));
  targetAddEventListener(window, "message", (event) => {
    begin(callOf(event));
    quietly(() => {
      const { type, payload } = messageData(event);
      if (messageSource(event) === window.top && type === "capabilities/cancel") calls.delete(payload.callId);
    });
  });
  // The app has answered: its call ends once what the handler left for a later turn is done.
  const endCall = async (call, time) => {
    if (calls.has(call) && effects.leavesMore(call, calls.get(call))) await effects.turns(call, clock() + time);
    calls.delete(call);
    tellHarness({ type: "turned", id: call });
  };

  // --- effects --------------------------------------------------------------------------------------------------------
  let events = [], asked = null, emitted = 0;
  const give = () => {
    if (asked === null || !events.length) return;
    const resolve = asked, texts = events;
    asked = null;
    events = [];
    resolve(texts);
  };
  const effects = makeEffects({
    natives,
    toJson,
    emit(kind, payload) {
      if (events.length >= MAX_WAITING) return;
      listPush(events, toJson([kind, payload]));
      give();
      emitted += 1;
      tellHarness({ type: "effect", payload: emitted });
    },
    // Content cannot be fetched later, so it is sent along if it is small.
    async hold(blob) {
      if (blobSize(blob) > config.inline) return {};
      return { base64: bytesToBase64(new Uint8Array(await blobArrayBuffer(blob))) };
    },
    currentCall: () => starting ?? handledCall() ?? lastKey(calls),
    startingCall: () => starting ?? handledCall(),
    isUnderWay: (call) => calls.has(call),
    within(call, run) {
      const before = starting;
      starting = call;
      try { return run(); } finally { starting = before; }
    },
    prints: false,
  });
  if (channel) {
    const port = channelPort1(channel), far = channelPort2(channel);
    targetAddEventListener(port, "message", (event) => {
      const { id, payload } = messageData(event);
      endCall(id, payload);
    });
    portStart(port);
    tellHarness({ type: "effect", payload: 0, port: far }, [far]);
  } else tellHarness({ type: "effect", payload: 0 });
  return { __proto__: null, next: () => new Promise((resolve) => { asked = resolve; give(); }) };
}
