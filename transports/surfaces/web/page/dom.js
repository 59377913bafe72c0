// Elements, and what a person is told. Data becomes text nodes and attributes only; nothing is ever parsed as HTML.

/** An element: `on…` functions listen, `null`, `undefined` and `false` leave an attribute out, strings become text. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'value') node.value = value;
    else node.setAttribute(name, value === true && !name.startsWith('aria-') ? '' : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

export function button(label, onclick, attributes = {}) {
  return h('button', { type: 'button', onclick, ...attributes }, label);
}

let waiting = [];

/** Say something to a screen reader. What comes in one second is said at once, or arrivals would interrupt each other. */
export function say(text) {
  if (!waiting.length) {
    setTimeout(() => {
      byId('said').textContent = waiting.length > 3 ? `${waiting.length} messages; the last: ${waiting.at(-1)}` : waiting.join('. ');
      waiting = [];
    }, 1000);
  }
  waiting.push(text);
}

/** A notice that goes away by itself after ten seconds, or by its button. Behind an open dialog nobody would notice it. */
export function notice(text) {
  const box = h('div', { class: 'notice', role: 'alert' }, h('span', {}, text), button('×', () => box.remove(), { class: 'quiet', 'aria-label': 'Dismiss' }));
  ([...document.querySelectorAll('dialog[open]')].at(-1) ?? byId('notices')).append(box);
  setTimeout(() => box.remove(), 10_000);
}

/** Run the work of a button: it is disabled meanwhile, and what goes wrong becomes a notice. */
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

/** A button that copies a text, and says so. */
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

/** A modal question with two answers; resolves to whether it was agreed to. Focus starts on the harmless one. */
export function confirm(question, yes) {
  return new Promise((resolve) => {
    const ends = (answer) => () => dialog.close(answer);
    const dialog = h('dialog', { class: 'confirm', 'aria-label': question },
      h('p', {}, question),
      h('div', { class: 'row end' }, button('Cancel', ends('no'), { autofocus: true }), button(yes, ends('yes'), { class: 'danger' })));
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes');
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
