// CSV as in RFC 4180: quotes, doubled quotes, line breaks inside quotes.

import { AbpError } from '../protocol/errors.js';

export function parseCsv(text) {
  const rows = [];
  let row = [];
  let cell = '';
  let quoted = false;
  const endCell = () => {
    row.push(cell);
    cell = '';
  };
  const endRow = () => {
    endCell();
    if (row.length > 1 || row[0] !== '') rows.push(row);
    row = [];
  };
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (quoted) {
      if (char !== '"') cell += char;
      else if (text[at + 1] === '"') cell += text[(at += 1)];
      else quoted = false;
    } else if (char === '"' && cell === '') quoted = true;
    else if (char === ',') endCell();
    else if (char === '\n') endRow();
    else if (char !== '\r') cell += char;
  }
  if (quoted) throw new AbpError('INVALID_PARAMS', 'csv has a quote that is never closed');
  endRow();
  return rows;
}

const cellText = (value) => {
  const text = value === null || value === undefined ? '' : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** Objects as CSV; the columns are all keys, in order of first appearance. */
export function formatCsv(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))];
  return lines.map((line) => `${line.map(cellText).join(',')}\r\n`).join('');
}

/** CSV with a header line as objects; cells that are plain numbers become numbers. */
export function csvToItems(text) {
  const [header = [], ...rows] = parseCsv(text);
  const value = (cell) => (/^-?(0|[1-9]\d{0,14})(\.\d+)?$/.test(cell) ? Number(cell) : cell);
  return rows.map((row) => Object.fromEntries(header.map((name, at) => [name, value(row[at] ?? '')])));
}
