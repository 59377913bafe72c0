// Its Content-Security-Policy is that of every Manifest V3 page: no inline script, no eval.
const bytes = (size) => new Uint8Array(size).map((_, index) => (index * 31) % 253);
const file = (size) => ({ content: bytes(size).buffer, mimeType: "application/octet-stream", size });

const CAPABILITIES = {
  "shelf.small": () => ({ file: file(1000) }),
  "shelf.large": () => ({ file: file(3_000_000) }),
  "shelf.measure": ({ file: given }) => ({ size: given.content.byteLength, last: new Uint8Array(given.content).at(-1) }),
  "shelf.put": async ({ key, value }) => {
    await chrome.storage.local.set({ [key]: value });
    return { keys: Object.keys(await chrome.storage.local.get()) };
  },
  "shelf.get": async ({ key }) => ({ value: (await chrome.storage.local.get(key))[key] ?? null }),
  "shelf.ask": async ({ text }) => ({ id: chrome.runtime.id, answer: await chrome.runtime.sendMessage(text) }),
};

globalThis.abp = {
  async initialize() {
    const { name, version } = chrome.runtime.getManifest();
    return { sessionId: "shelf", protocolVersion: "0.1", app: { id: "shelf", name, version }, capabilities: [], features: {} };
  },
  async listCapabilities() {
    return Object.keys(CAPABILITIES).map((name) => ({ name, description: name, available: true }));
  },
  async call(name, params) {
    return { success: true, data: await CAPABILITIES[name](params) };
  },
  async shutdown() {},
};
