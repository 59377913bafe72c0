const always = { name: "convert.markdownToHtml", available: true };
const summary = {
  name: "ai.summarize",
  description: "Summarize text by the model of the browser",
  inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  available: true,
  experimental: true,
  browserRequirement: "Chrome 130+ with AI features enabled",
};
let hasModel = false;
sample(
  "dynamic",
  () => (hasModel ? [always, summary] : [always]),
  {
    "convert.markdownToHtml": ({ markdown: text }) => ({ html: markdown(text) }),
    "ai.summarize": ({ text }) => ({ summary: String(text).slice(0, 10) }),
  },
  { notifications: true, dynamicCapabilities: true },
);
// stands for the download of a model, which ends at some time of a session
window.finishDownload = () => {
  hasModel = true;
  window.abp.notify("notifications/capabilities/list_changed", { added: ["ai.summarize"] });
};
