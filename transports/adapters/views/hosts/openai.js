// window.openai as ChatGPT gives it to views, beside the specification's bridge. Python calls this with the globals of the
// view, before the view's first script.
(globals) => {
  "use strict";
  const waiting = new Map();
  let last = 0, used = false;
  const post = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const ask = (method, params) => new Promise((resolve, reject) => {
    const id = `openai-${last += 1}`;
    waiting.set(id, ({ result, error }) => (error ? reject(new Error(error.message)) : resolve(result)));
    post({ id, method, params });
  });
  const unknown = (name) => () => Promise.reject(new Error(`window.openai.${name} is not imitated`));
  const set = (changed) => {
    Object.assign(globals, changed);
    dispatchEvent(new CustomEvent("openai:set_globals", { detail: { globals: changed } }));
  };
  addEventListener("message", (event) => {
    if (event.source !== parent || typeof event.data !== "object" || event.data === null) return;
    const { id, method, params } = event.data;
    if (method === undefined && waiting.has(id)) {
      event.stopImmediatePropagation(); // no answer of the view's own bridge
      waiting.get(id)(event.data);
      waiting.delete(id);
    }
    if (method !== "ui/notifications/host-context-changed") return;
    const { theme, locale, displayMode, containerDimensions } = params;
    const maxHeight = containerDimensions?.maxHeight;
    set(Object.fromEntries(Object.entries({ theme, locale, displayMode, maxHeight }).filter(([, value]) => value !== undefined)));
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
  for (const name of Object.keys(globals)) Object.defineProperty(openai, name, { get: () => globals[name], enumerable: true });
  Object.defineProperty(window, "openai", {
    get() {
      if (!used) post({ method: "ui/notifications/openai-used", params: {} });
      used = true;
      return openai;
    },
  });
}
