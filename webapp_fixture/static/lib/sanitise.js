// Foreign HTML made safe to put into the page: no scripts, no frames, no event handlers, no script addresses.

const DROPPED = 'script, iframe, frame, frameset, object, embed, applet, link, meta, base, template, noscript, animate, set, portal';
const ADDRESSES = new Set(['href', 'src', 'action', 'formaction', 'xlink:href', 'poster', 'background', 'data', 'ping']);

const isScriptAddress = (value) => /^(javascript|vbscript|data:text\/html)/i.test(value.replace(/[\u0000-\u0020]/g, ''));

/** A DocumentFragment of the body, preceded by the document's style sheets (which then apply to print only). */
export function sanitise(html) {
  const parsed = new DOMParser().parseFromString(html, 'text/html');
  for (const element of parsed.querySelectorAll(DROPPED)) element.remove();
  for (const element of parsed.querySelectorAll('*')) {
    for (const { name, value } of [...element.attributes]) {
      const address = ADDRESSES.has(name.toLowerCase()) && isScriptAddress(value);
      if (/^on/i.test(name) || name === 'srcdoc' || address) element.removeAttribute(name);
    }
  }
  const styles = [...parsed.querySelectorAll('style')];
  for (const style of styles) style.media = 'print';
  const fragment = document.createDocumentFragment();
  fragment.append(...styles, ...parsed.body.childNodes);
  return { fragment, title: parsed.title };
}
