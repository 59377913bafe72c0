// An adapter: it makes an app of a page that has a table.

abp.capability("table.csv", {
  description: "The rows of the table as a CSV file",
  properties: { selector: { type: "string", description: "Which table, if there are several" } },
}, async ({ selector = "table" }) => {
  const table = await abp.find(selector);
  const rows = [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));
  return { file: { content: new Blob([abp.csv(rows)]), mimeType: "text/csv", filename: "table.csv" }, rows: rows.length };
});
