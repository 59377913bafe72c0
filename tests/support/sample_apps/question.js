sample(
  "question",
  () => [{ name: "export.customPdf", available: true }],
  {
    "export.customPdf": async ({ html }) => {
      if (typeof html !== "string") throw refused("INVALID_PARAMS", "html is not text");
      if (!window.__abp_elicitation) throw refused("ELICITATION_REQUIRED", "This capability needs a question");
      const schema = { type: "string", enum: ["letter", "a4", "legal"], default: "letter" };
      const params = { prompt: "What page size for the PDF?", schema };
      const reply = await window.__abp_elicitation({ method: "elicitation/input", params });
      if (!reply.success) throw refused("ELICITATION_FAILED", "No page size");
      return { pdf: btoa(`%PDF-1.4\n${html.padEnd(3000)}`), pageSize: reply.data.value };
    },
  },
  { elicitation: true },
);
