const style = document.createElement("style");
style.textContent =
  "@media print { body > *:not(#print-container) { display: none; } }" +
  "@page { size: var(--page-size, A4) portrait; margin: 15mm; }";
document.head.append(style);
const container = document.createElement("div");
container.id = "print-container";
document.body.append(container);
sample("print", () => [{ name: "export.pdf", available: true }], {
  "export.pdf": async ({ html, options = {} }, { progressToken }) => {
    if (typeof html !== "string") throw refused("INVALID_PARAMS", "html is not text");
    const report = (percentage, stage) => {
      const step = { operationId: progressToken, progress: percentage, total: 100, percentage, stage, status: stage };
      if (progressToken) window.__abp_progress(step);
    };
    report(0, "prepare");
    container.innerHTML = html;
    document.documentElement.style.setProperty("--page-size", options.pageSize ?? "A4");
    await document.fonts.ready;
    report(80, "print");
    window.print();
    report(100, "done");
    return { rendered: true };
  },
});
