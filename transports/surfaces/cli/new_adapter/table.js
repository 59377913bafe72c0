// An adapter: it makes an app of a page that has a table.

abp.capability("table.csv", {
  description: "The rows of the table as a CSV file",
  properties: { selector: { type: "string", description: "Which table, if there are several" } },
  outputSchema: {
    properties: {
      file: {
        properties: { content: {}, mimeType: { type: "string" }, size: { type: "integer" } },
        required: ["content", "mimeType"],
      },
      rows: { type: "integer" },
    },
  },
}, async ({ selector = "table" }) => {
  const table = await abp.find(selector);
  const rows = [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
  const content = new Blob([abp.csv(rows)]);
  return { file: { content, mimeType: "text/csv", size: content.size, filename: "table.csv" }, rows: rows.length };
});
