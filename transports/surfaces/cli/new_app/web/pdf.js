// A PDF of one page, with lines of text. For more than that take a library, such as pdf-lib.

/** Answers the bytes of the PDF. Characters that Latin-1 lacks become question marks. */
export function makePdf(lines) {
  const escaped = lines.map((line) => line.replace(/[^\x20-\x7e\xa0-\xff]/gu, '?').replace(/[\\()]/g, '\\$&'));
  const text = `BT /F1 12 Tf 16 TL 72 770 Td\n${escaped.map((line) => `(${line}) Tj T*\n`).join('')}ET`;
  const page = '/MediaBox [0 0 595 842] /Resources << /Font << /F1 5 0 R >> >> /Contents 4 0 R';
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
    `<< /Type /Page /Parent 2 0 R ${page} >>`,
    `<< /Length ${text.length} >>\nstream\n${text}\nendstream`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>',
  ];
  let pdf = '%PDF-1.4\n';
  let table = 'xref\n0 6\n0000000000 65535 f \n';
  objects.forEach((object, at) => {
    table += `${String(pdf.length).padStart(10, '0')} 00000 n \n`;
    pdf += `${at + 1} 0 obj\n${object}\nendobj\n`;
  });
  pdf += `${table}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n${pdf.length}\n%%EOF\n`;
  return Uint8Array.from(pdf, (char) => char.charCodeAt(0));
}
