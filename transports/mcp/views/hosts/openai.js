// window.openai as ChatGPT gives it to views, beside the specification's bridge. Python calls this with the natives
// (natives.js) and the globals of the view, before the view's first script.
(natives, globals) => {
  "use strict";
  const {
    CustomEvent, Error, Map, Promise, defineProperty, eventStopImmediatePropagation, keys, listForEach, messageData,
    messageSource, ofPage, postMessage, targetAddEventListener, targetDispatchEvent,
  } = natives;
  const { parent } = ofPage;
  const waiting = new Map();
  let last = 0, used = false;
  const post = (message) => postMessage(parent, { jsonrpc: "2.0", ...message }, "*");
  const ask = (method, params) => new Promise((resolve, reject) => {
    const id = `openai-${last += 1}`;
    waiting.set(id, ({ result, error }) => (error ? reject(new Error(error.message)) : resolve(result)));
    post({ id, method, params });
  });
  const unknown = (name) => async () => { throw new Error(`window.openai.${name} is not imitated`); };
  const set = (changed) => {
    listForEach(keys(changed), (name) => { globals[name] = changed[name]; });
    targetDispatchEvent(window, new CustomEvent("openai:set_globals", { __proto__: null, detail: { globals: changed } }));
  };
  targetAddEventListener(window, "message", (event) => {
    const data = messageData(event);
    if (messageSource(event) !== parent || typeof data !== "object" || data === null) return;
    const { id, method, params } = data;
    if (method === undefined && waiting.has(id)) {
      eventStopImmediatePropagation(event); // no answer of the view's own bridge
      waiting.get(id)(data);
      waiting.delete(id);
    }
    if (method !== "ui/notifications/host-context-changed") return;
    const { theme, locale, displayMode, containerDimensions } = params;
    const maxHeight = containerDimensions?.maxHeight;
    const changed = { theme, locale, displayMode, maxHeight };
    listForEach(keys(changed), (name) => { if (changed[name] === undefined) delete changed[name]; });
    set(changed);
  }, true);
  const openai = {
    callTool: (name, args) => ask("tools/call", { name, arguments: args ?? {} }),
    sendFollowUpMessage: ({ prompt }) => ask("ui/message", { role: "user", content: [{ type: "text", text: prompt }] }),
    openExternal: ({ href }) => ask("ui/open-link", { url: href }),
    requestDisplayMode: ({ mode }) => ask("ui/request-display-mode", { mode }),
    requestClose: async () => post({ method: "ui/notifications/request-teardown", params: {} }),
    setWidgetState: async (widgetState) => set({ widgetState }),
    uploadFile: unknown("uploadFile"), selectFiles: unknown("selectFiles"),
    getFileDownloadUrl: unknown("getFileDownloadUrl"), requestModal: unknown("requestModal"),
  };
  const expose = (owner, name, get) => defineProperty(owner, name, { __proto__: null, get, enumerable: owner === openai });
  listForEach(keys(globals), (name) => expose(openai, name, () => globals[name]));
  expose(window, "openai", () => {
    if (!used) post({ method: "ui/notifications/openai-used", params: {} });
    used = true;
    return openai;
  });
}
