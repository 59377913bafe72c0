sample("minimal", () => [{ name: "convert.markdownToHtml", available: true }], {
  "convert.markdownToHtml": ({ markdown: text }) => ({ html: markdown(text), inputLength: text.length }),
});
