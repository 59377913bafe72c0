// A small, safe markdown renderer: everything is escaped first, and only known constructs become tags.

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
export const escapeHtml = (text) => String(text).replace(/[&<>"']/g, (char) => ESCAPES[char]);

const SAFE_LINK = /^(https?:|mailto:|#|\/(?!\/)|\.{0,2}\/|[\w-]+(\.[\w-]+)*([/?#]|$))/i;
const SAFE_IMAGE = /^(https?:|data:image\/(png|jpeg|gif|webp);base64,|\/(?!\/)|[\w-]+(\.[\w-]+)*([/?#]|$))/i;

/** Spans inside a line. Finished pieces are set aside as private-use characters, so that nothing is rendered twice. */
function inline(source) {
  const finished = [];
  const keep = (html) => `\ue000${finished.push(html) - 1}\ue001`;
  let text = source.replace(/[\ue000\ue001]/g, '');
  text = text.replace(/\\([\\`*_{}[\]()#+\-.!|~>])/g, (_, char) => keep(escapeHtml(char)));
  text = text.replace(/(`+)(.+?)\1(?!`)/g, (_, _ticks, code) => keep(`<code>${escapeHtml(code.trim())}</code>`));
  text = escapeHtml(text);
  const target = (url) => url.replaceAll('&amp;', '&');
  text = text.replace(/!\[([^\]]*)\]\(((?:[^\s()]|\([^\s()]*\))+)\)/g, (whole, alt, url) =>
    SAFE_IMAGE.test(target(url)) ? keep(`<img src="${url}" alt="${alt}">`) : whole,
  );
  text = text.replace(/\[([^\]]+)\]\(((?:[^\s()]|\([^\s()]*\))+)(?:\s+&quot;(.*?)&quot;)?\)/g, (whole, label, url, title) => {
    if (!SAFE_LINK.test(target(url))) return label;
    return `${keep(`<a href="${url}"${title ? ` title="${title}"` : ''}>`)}${label}${keep('</a>')}`;
  });
  text = text.replace(/(^|[\s(])(https?:\/\/[^\s<>"')]+[^\s<>"').,;:!?])/g, (_, before, url) =>
    `${before}${keep(`<a href="${url}">${url}</a>`)}`,
  );
  text = text
    .replace(/(\*\*|__)(?=\S)(.+?)(?<=\S)\1/g, '<strong>$2</strong>')
    .replace(/\*(?=\S)(.+?)(?<=\S)\*/g, '<em>$1</em>')
    .replace(/(^|\W)_(?=\S)(.+?)(?<=\S)_(?=\W|$)/g, '$1<em>$2</em>')
    .replace(/~~(?=\S)(.+?)(?<=\S)~~/g, '<del>$1</del>');
  const restore = (html) => html.replace(/\ue000(\d+)\ue001/g, (_, at) => restore(finished[at]));
  return restore(text);
}

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+-]*)\s*$/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^\s{0,3}>\s?(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const blank = (line) => /^\s*$/.test(line);

const cells = (line) => {
  const inner = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
};

function takeTable(lines) {
  const head = cells(lines.shift());
  const align = cells(lines.shift()).map((mark) => {
    if (!mark.endsWith(':')) return '';
    return ` align="${mark.startsWith(':') ? 'center' : 'right'}"`;
  });
  const row = (line, tag) => {
    const inner = head.map((_, at) => `<${tag}${align[at] ?? ''}>${inline(line[at] ?? '')}</${tag}>`);
    return `<tr>${inner.join('')}</tr>`;
  };
  const body = [];
  while (lines.length && lines[0].includes('|') && !blank(lines[0])) body.push(row(cells(lines.shift()), 'td'));
  return `<table><thead>${row(head, 'th')}</thead><tbody>${body.join('')}</tbody></table>`;
}

function takeList(lines, depth) {
  const [, indent, marker] = ITEM.exec(lines[0]);
  const ordered = /\d/.test(marker);
  const items = [];
  while (lines.length) {
    const match = ITEM.exec(lines[0]);
    if (!match || match[1].length < indent.length || /\d/.test(match[2]) !== ordered) break;
    lines.shift();
    const inner = [match[3]];
    items.push(inner);
    const deeper = (line) => /^\s*/.exec(line)[0].length > indent.length && !blank(line);
    while (lines.length && deeper(lines[0])) inner.push(lines.shift().slice(indent.length).replace(/^( {1,4}|\t)/, ''));
    if (lines.length > 1 && blank(lines[0]) && ITEM.test(lines[1])) lines.shift();
  }
  const start = ordered && Number.parseInt(marker, 10) !== 1 ? ` start="${Number.parseInt(marker, 10)}"` : '';
  const html = items.map(([first, ...rest]) => {
    const box = /^\[([ xX])\]\s+(.*)$/.exec(first);
    const label = box ? `<input type="checkbox" disabled${box[1] === ' ' ? '' : ' checked'}> ${inline(box[2])}` : inline(first);
    return `<li>${label}${rest.length ? blocks(rest, depth + 1, true) : ''}</li>`;
  });
  const tag = ordered ? 'ol' : 'ul';
  return `<${tag}${start}>${html.join('')}</${tag}>`;
}

function takeFence(lines) {
  const [, fence, language] = FENCE.exec(lines.shift());
  const code = [];
  while (lines.length && !lines[0].trim().startsWith(fence)) code.push(lines.shift());
  lines.shift();
  const kind = language ? ` class="language-${escapeHtml(language)}"` : '';
  return `<pre><code${kind}>${escapeHtml(code.join('\n'))}\n</code></pre>`;
}

const startsBlock = (lines) =>
  [FENCE, HEADING, RULE, ITEM, QUOTE].some((pattern) => pattern.test(lines[0])) ||
  (lines[0].includes('|') && DIVIDER.test(lines[1] ?? ''));

function takeParagraph(lines, tight) {
  const text = [];
  do text.push(lines.shift());
  while (lines.length && !blank(lines[0]) && !startsBlock(lines));
  const html = text.map((line) => inline(line.trim()) + (/( {2}|\\)$/.test(line) ? '<br>' : '')).join('\n');
  return tight ? ` ${html}` : `<p>${html}</p>`;
}

function blocks(lines, depth = 0, tight = false) {
  const html = [];
  while (lines.length) {
    const heading = HEADING.exec(lines[0]);
    if (blank(lines[0])) lines.shift();
    else if (depth > 20) html.push(takeParagraph(lines, tight)); // as deep as anyone needs
    else if (FENCE.test(lines[0])) html.push(takeFence(lines));
    else if (heading) {
      lines.shift();
      html.push(`<h${heading[1].length}>${inline(heading[2])}</h${heading[1].length}>`);
    } else if (RULE.test(lines[0])) {
      lines.shift();
      html.push('<hr>');
    } else if (QUOTE.test(lines[0])) {
      const quoted = [];
      while (lines.length && QUOTE.test(lines[0])) quoted.push(QUOTE.exec(lines.shift())[1]);
      html.push(`<blockquote>${blocks(quoted, depth + 1)}</blockquote>`);
    } else if (ITEM.test(lines[0])) html.push(takeList(lines, depth));
    else if (lines[0].includes('|') && DIVIDER.test(lines[1] ?? '')) html.push(takeTable(lines));
    else html.push(takeParagraph(lines, tight));
  }
  return html.join('\n');
}

/** Markdown as {html, title, words}; the title is the first heading's text unless given. */
export function renderMarkdown(markdown, title) {
  const html = blocks(markdown.replace(/\r\n?/g, '\n').split('\n'));
  const text = new DOMParser().parseFromString(html, 'text/html');
  const words = text.body.textContent.match(/[\p{L}\p{N}][\p{L}\p{N}'’-]*/gu) ?? [];
  const heading = text.querySelector('h1, h2, h3, h4, h5, h6')?.textContent;
  return { html, title: title ?? (heading || 'Untitled'), words: words.length };
}
