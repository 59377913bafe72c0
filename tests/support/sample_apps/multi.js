const names = ["convert.markdownToHtml", "text.uppercase", "export.html"];
sample("multi", () => names.map((name) => ({ name, available: true })), {
  "convert.markdownToHtml": ({ markdown: text }) => ({ html: markdown(text) }),
  "text.uppercase": ({ text }) => {
    if (typeof text !== "string") throw refused("INVALID_PARAMS", "Missing required parameter: text");
    return { result: text.toUpperCase(), originalLength: text.length };
  },
  "export.html": ({ content, title = "Export" }) => {
    if (typeof content !== "string") throw refused("INVALID_PARAMS", "content is not text");
    const html = `<!DOCTYPE html><html><head><title>${title}</title></head><body>${content}</body></html>`;
    const size = new Blob([html]).size;
    return { document: { content: html, mimeType: "text/html", encoding: "utf-8", size, filename: "export.html" } };
  },
});
