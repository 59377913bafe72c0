// Printing one document instead of the app. window.print() is the signal: a driving client replaces it and makes a PDF
// of the page. While printing, everything but the print root gets the `hidden` attribute, which works without style sheets.

const root = () => document.getElementById('print-root');
const hidden = new Set();
let pageRule = null;
let titleBefore = null;

function hideApp() {
  if (!root().hasChildNodes()) return;
  root().hidden = false;
  for (const element of document.body.children) {
    if (element === root() || element.hidden) continue;
    element.hidden = true;
    hidden.add(element);
  }
}

function restoreApp() {
  for (const element of hidden) element.hidden = false;
  hidden.clear();
  root().hidden = true;
}

/** Take the document out of the page again. */
export function clearPrint() {
  restoreApp();
  root().replaceChildren();
  if (pageRule) document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== pageRule);
  if (titleBefore !== null) document.title = titleBefore;
  pageRule = null;
  titleBefore = null;
}

async function imagesLoaded(limit) {
  const decoded = [...root().querySelectorAll('img')].map((image) => image.decode().catch(() => {}));
  let timer;
  await Promise.race([Promise.all(decoded), new Promise((resolve) => (timer = setTimeout(resolve, limit)))]);
  clearTimeout(timer);
}

let queue = Promise.resolve();

/**
 * Put the fragment into the print root and signal; it stays until the next `afterprint` or the next call. Calls take
 * turns, so that none is signalled with another's document.
 */
export function printDocument(fragment, options) {
  const turn = queue.then(() => layOut(fragment, options));
  queue = turn.catch(() => {});
  return turn;
}

async function layOut(fragment, { title, pageSize, landscape, signal }) {
  signal.throwIfAborted();
  clearPrint();
  if (pageSize || landscape) {
    pageRule = new CSSStyleSheet(); // a constructed sheet is not subject to style-src
    pageRule.replaceSync(`@page { size: ${pageSize ?? ''} ${landscape ? 'landscape' : 'portrait'} }`);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, pageRule];
  }
  root().replaceChildren(fragment);
  titleBefore = document.title;
  document.title = title;
  await imagesLoaded(3000);
  signal.throwIfAborted();
  window.print();
}

export function installPrinting() {
  window.addEventListener('beforeprint', hideApp);
  window.addEventListener('afterprint', clearPrint);
}
