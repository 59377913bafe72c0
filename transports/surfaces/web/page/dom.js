// Elements, announcements and dialogs. Data becomes text nodes and attributes only, and is never parsed as HTML.

/** An element: `on…` functions listen, `null`, `undefined` and `false` leave an attribute out, strings become text. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'value') node.value = value;
    else node.setAttribute(name, value === true && !name.startsWith('aria-') ? '' : value);
  }
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  node.append(...shown);
  return node;
}

export const byId = (id) => document.getElementById(id);

export function button(label, onclick, attributes = {}) {
  return h('button', { type: 'button', onclick, ...attributes }, label);
}

/** A search field. `search` runs at every key, or once 250 ms have passed without a key. */
export function searchField(label, search, { delayed = false } = {}) {
  let timer = 0;
  const oninput = () => {
    clearTimeout(timer);
    if (delayed) timer = setTimeout(search, 250);
    else search();
  };
  return h('input', { type: 'search', placeholder: label, 'aria-label': label, oninput });
}

/** Add an option to a list unless it is there; before the others with `first`. */
export function addOption(select, value, text = value, { first = false } = {}) {
  if (!value || [...select.options].some((option) => option.value === value)) return;
  const option = h('option', { value }, text);
  if (first) select.options[0].after(option);
  else select.append(option);
}

/** A scrollable part of the page, which the keyboard reaches. */
export function scroller(name, content, { tag = 'div', kind = '' } = {}) {
  return h(tag, { class: `scroller ${kind}`, tabindex: 0, role: 'region', 'aria-label': name }, content);
}

/** Focus the heading of a part that was just filled, and in a narrow window scroll to it. */
export function showHeading(heading) {
  heading.focus({ preventScroll: true });
  if (matchMedia('(max-width: 860px)').matches) heading.scrollIntoView();
}

export const joined = (...facts) => facts.filter(Boolean).join(' · ');
export const hrefOf = (artifactId) => `#artifact=${encodeURIComponent(artifactId)}`;

let announcements = [];

/** Announce a text to screen readers. Texts within one second are announced together, since each interrupts the previous. */
export function say(text) {
  if (!announcements.length) setTimeout(announce, 1000);
  announcements.push(text);
}

function announce() {
  const { length } = announcements;
  byId('said').textContent = length > 3 ? `${length} messages; the last: ${announcements.at(-1)}` : announcements.join('. ');
  announcements = [];
}

/** Show a notice for ten seconds or until it is dismissed; inside an open dialog, which would cover it. */
export function notice(text) {
  const dismiss = button('×', () => box.remove(), { class: 'quiet', 'aria-label': 'Dismiss' });
  const box = h('div', { class: 'notice', role: 'alert' }, h('span', {}, text), dismiss);
  const place = [...document.querySelectorAll('dialog[open]')].at(-1) ?? byId('notices');
  place.append(box);
  setTimeout(() => box.remove(), 10_000);
}

/** Report an error, unless it is 401: then the page shows the sign-in. */
export function showError(error) {
  if (error.status !== 401) notice(error.message);
}

/** Run the work of a button while it is disabled. An error becomes a notice. */
export async function busy(node, work) {
  node.disabled = true;
  node.ariaBusy = 'true';
  try {
    return await work();
  } catch (error) {
    notice(error.message);
    return undefined;
  } finally {
    node.disabled = false;
    node.ariaBusy = null;
  }
}

/** A button that copies a text and announces it. */
export function copyButton(text, what) {
  const node = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text);
      node.textContent = 'Copied';
      say(`${what} copied`);
    } catch {
      notice(`the browser does not let this page copy; the ${what} is: ${text}`);
    }
    setTimeout(() => (node.textContent = 'Copy'), 2000);
  }, { class: 'quiet small', 'aria-label': `Copy ${what}` });
  return node;
}

/** Ask for confirmation in a modal dialog. Resolves to true if the answer is yes; the focus starts on Cancel. */
export function confirm(question, yes) {
  return new Promise((resolve) => {
    const closeWith = (answer) => () => dialog.close(answer);
    const dialog = h('dialog', { class: 'confirm', 'aria-label': question },
      h('p', {}, question),
      h('div', { class: 'row end' },
        button('Cancel', closeWith('no'), { autofocus: true }),
        button(yes, closeWith('yes'), { class: 'danger' })));
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
