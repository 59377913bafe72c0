// Offers the WebMCP tools of a frame to the top page's agent, over a port that no script of the app sees. A frame of another
// origin can do so too. A function expression, run before the frame's first script; `key` is known to the agent only. What the
// tools do beside answering is told as of a page (effects.js), once the frame has a tool; a frame without is left alone.
(key, makeTools, makeAnswers, makeEffects) => {
  "use strict";
  if (globalThis === globalThis.top) return;
  const { apply } = Reflect, { stringify } = JSON;
  const post = globalThis.top.postMessage.bind(globalThis.top), setTimer = globalThis.setTimeout.bind(globalThis);
  const blobs = new Map(); // object URL → its Blob: a strict policy forbids to fetch it
  const create = URL.createObjectURL, revoke = URL.revokeObjectURL;
  URL.createObjectURL = function createObjectURL(object) {
    const url = apply(create, URL, arguments);
    if (object instanceof Blob) blobs.set(url, object);
    return url;
  };
  URL.revokeObjectURL = function revokeObjectURL(url) {
    blobs.delete(String(url));
    return apply(revoke, URL, arguments);
  };
  const answers = makeAnswers((url) => blobs.get(url));

  let port = null, sent = "[]", scheduled = false;
  const running = new Map(); // id → AbortController
  const watchEffects = () => makeEffects({
    emit: (kind, payload) => port.postMessage({ effect: kind, payload }),
    hold: (blob) => ({ blob }),
    currentCall: () => [...running.keys()].at(-1) ?? null,
    prints: false,
  });
  const call = async ({ id, name, input, abp }) => {
    const warnings = [], warn = (text) => warnings.push(text), controller = new AbortController();
    running.set(id, controller);
    let answer;
    try {
      answer = await answers.toAnswer(await tools.execute(name, input, { signal: controller.signal, warn, abp }), warn);
    } catch (error) {
      answer = { threw: String(error?.message ?? error), name: String(error?.name), code: error?.code };
    } finally { running.delete(id); }
    try { port.postMessage({ id, answer, warnings }); } catch (error) {
      port.postMessage({ id, answer: { threw: `the answer cannot leave its frame: ${error.message}`, name: error.name }, warnings });
    }
  };
  const open = () => {
    const channel = new MessageChannel();
    port = channel.port1;
    port.onmessage = ({ data }) => (data.cancel === undefined ? call(data) : running.get(data.cancel)?.abort(data.reason));
    post([key, globalThis.name, location.href], "*", [channel.port2]);
    globalThis.addEventListener("pagehide", () => port.postMessage({ gone: true }));
    watchEffects();
  };
  const announce = async () => {
    scheduled = false;
    const listed = await tools.list(), text = stringify(listed);
    if (text === sent) return;
    sent = text;
    if (!port) open();
    port.postMessage({ tools: listed });
  };
  const tools = makeTools(() => {
    if (!scheduled) { scheduled = true; setTimer(announce, 0); }
  });
}
