// What the sample apps share: the object that the protocol's guides build in each of them.
window.sample = (id, listed, calls, more = {}) => {
  const failure = (code, message, retryable = false) => ({ success: false, error: { code, message, retryable } });
  window.abp = {
    protocolVersion: "0.1",
    app: { id: `com.example.${id}`, name: id, version: "1.0.0" },
    session: null,
    async initialize() {
      this.session = crypto.randomUUID();
      return {
        sessionId: this.session,
        protocolVersion: "0.1",
        app: this.app,
        capabilities: listed(),
        features: { notifications: false, progress: false, elicitation: false, dynamicCapabilities: false, ...more },
      };
    },
    async shutdown() {
      this.session = null;
    },
    async call(capability, params = {}, options = {}) {
      if (this.session === null) return failure("NOT_INITIALIZED", "Call initialize() first", true);
      if (!Object.hasOwn(calls, capability)) return failure("UNKNOWN_CAPABILITY", `Unknown: ${capability}`);
      try {
        return { success: true, data: await calls[capability](params, options) };
      } catch (error) {
        return failure(error.code ?? "CONVERSION_ERROR", error.message);
      }
    },
    // the guides' apps answer an empty list here, and what they can do in initialize()
    async listCapabilities() {
      return more.dynamicCapabilities ? listed() : [];
    },
    async supports(name) {
      const entry = listed().find((capability) => capability.name === name);
      return { supported: entry !== undefined, available: entry?.available ?? false };
    },
    notify(method, params) {
      window.__abp_notify?.({ method, params });
    },
    notifyProgress(info) {
      window.__abp_progress?.(info);
    },
    async elicit() {
      return failure("NOT_SUPPORTED", "Not supported");
    },
    async cancel() {
      return { callId: "", cancelled: false };
    },
  };
};
window.refused = (code, message) => Object.assign(new Error(message), { code });
window.markdown = (text) => {
  if (typeof text !== "string") throw refused("INVALID_PARAMS", "markdown is not text");
  const holder = document.createElement("div");
  holder.textContent = text;
  return holder.innerHTML.replace(/\*\*(.*?)\*\*/g, "<strong>$1</strong>").replace(/^# (.*)$/gm, "<h1>$1</h1>");
};
