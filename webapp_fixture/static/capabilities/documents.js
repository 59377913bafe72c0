// Text in, documents out: convert.markdownToHtml, export.html, export.pdf, archive.gzip.

import { AbpError } from '../protocol/errors.js';
import { filenameFor, wrapText } from '../lib/binary.js';
import { escapeHtml, renderMarkdown } from '../lib/markdown.js';
import { printDocument } from '../lib/print.js';
import { sanitise } from '../lib/sanitise.js';

const STYLE = `
  body { font: 16px/1.6 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; color: #1f2430; }
  table { border-collapse: collapse; } th, td { border: 1px solid #cdd2db; padding: .3rem .6rem; }
  pre { background: #f3f4f7; padding: .8rem; overflow: auto; } code { font-family: ui-monospace, monospace; }
  blockquote { border-left: 3px solid #cdd2db; margin-left: 0; padding-left: 1rem; color: #555c6b; }
  img { max-width: 100%; }`;

const wholeDocument = (body, title) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${escapeHtml(title)}</title>
<style>${STYLE}
</style>
</head>
<body>
${body}
</body>
</html>
`;

async function markdownToHtml({ markdown, title: given }) {
  const { html, title, words } = renderMarkdown(markdown, given);
  return { html: wrapText(html, 'text/html', filenameFor(title, 'html')), title, words };
}

async function exportHtml({ markdown, html, title }) {
  if ((markdown === undefined) === (html === undefined)) {
    throw new AbpError('MISSING_PARAM', 'give either markdown or html', { details: { param: 'markdown' } });
  }
  const rendered = markdown === undefined ? { html, title: title ?? 'Untitled' } : renderMarkdown(markdown, title);
  const whole = /^\s*(<!doctype|<html)/i.test(rendered.html);
  const content = whole ? rendered.html : wholeDocument(rendered.html, rendered.title);
  return { document: wrapText(content, 'text/html', filenameFor(rendered.title, 'html')) };
}

async function exportPdf({ html, options = {}, title }, { signal }) {
  const safe = sanitise(html);
  const heading = safe.fragment.querySelector('h1, h2, h3')?.textContent.trim();
  const printed = title ?? (safe.title || heading || 'Document');
  const pageSize = { a4: 'A4', letter: 'letter' }[options.pageSize];
  await printDocument(safe.fragment, { title: printed, pageSize, landscape: options.landscape, signal });
  return { rendered: true, title: printed };
}

async function gzip({ text }) {
  const original = new Blob([text]);
  const compressed = original.stream().pipeThrough(new CompressionStream('gzip'));
  const content = new Uint8Array(await new Response(compressed).arrayBuffer());
  const archive = { content, mimeType: 'application/gzip', size: content.length, filename: 'text.txt.gz' };
  return { archive, originalSize: original.size };
}

export const documents = {
  'convert.markdownToHtml': markdownToHtml,
  'export.html': exportHtml,
  'export.pdf': exportPdf,
  'archive.gzip': gzip,
};
