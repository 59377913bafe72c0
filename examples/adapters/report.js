// An adapter for a page that speaks no protocol: its table as CSV, its chart as PNG, and a report that it offers for download.
// abp call http://127.0.0.1:8000/ table.csv --adapter examples/adapters/report.js

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

abp.capability("chart.png", { description: "The chart as a picture" }, async () => {
  const canvas = await abp.find("canvas");
  const image = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return { image, width: canvas.width, height: canvas.height };
});

abp.capability("report.download", { description: "Click through to the report, as a person would" }, async () => {
  (await abp.find("#open-report")).click();
  (await abp.find("#report [data-action=save]")).click(); // what the click downloads becomes an artifact of this call
});
