// Live view of a call: the page's half of a host for views of MCP servers (MCP Apps). The view runs in a sandbox proxy on an origin of
// its own; each of its messages is checked here for its sender, and answered by the server (transports/surfaces/web/_views.py).
import { address, get, post, remove } from './api.js';
import { button, h } from './dom.js';
import { chips } from './panel.js';

const SANDBOX = 'allow-scripts allow-same-origin allow-forms';
const OWN = 'ui/notifications/sandbox-';
const OPEN = 16; // requests of the view that wait for their answer
const SHOWN = 50; // requests that are listed
const LONGEST = 300; // characters of a text in the list
const LOWEST = 120; // pixels of height
const HIGHEST = 900;
const TEARDOWN = 1000; // ms for the view's farewell
const REFUSED = -32000;
const LOOKS = [500, 2000, 5000]; // ms after which it is asked what the view's policy has forbidden
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);

function theme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen !== 'auto') return chosen;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

/** What a request of the view is for people, or null if there is nothing to tell. */
function told(method, params, refused) {
  const no = refused ? ' (refused)' : '';
  if (method === 'ui/open-link') {
    if (refused) return ['Link refused: ', cut(String(params.url))];
    return ['Link to open: ', h('a', { href: params.url, target: '_blank', rel: 'noopener noreferrer' }, cut(params.url))];
  }
  if (method === 'ui/message') {
    const texts = (Array.isArray(params.content) ? params.content : []).map((block) => block?.text).filter((text) => typeof text === 'string');
    return [`Message${no}: `, cut(texts.join(' '))];
  }
  if (method === 'ui/update-model-context') return [`For the model${no}: `, cut(JSON.stringify(params))];
  if (method === 'ui/download-file') return refused ? ['File refused'] : null;
  if (method === 'tools/call') return [`Called ${cut(String(params.name))}${no}`];
  return null;
}

/** Show the view of a call in `place`. */
export async function showView(call, place) {
  place.replaceChildren(h('p', { class: 'muted' }, 'Loading the view …'));
  const width = Math.max(Math.round(place.clientWidth), LOWEST);
  const { language } = navigator;
  const timezone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let view;
  try {
    view = await get(address(['views', call.id], { theme: theme(), locale: language, timezone, width, height: HIGHEST }));
  } catch (error) {
    place.replaceChildren(h('p', { class: 'muted' }, `No live view: ${error.message}`));
    return;
  }

  const frame = h('iframe', { class: 'live', title: `View of ${call.capability}`, sandbox: SANDBOX, allow: view.allow, src: `${view.origin}/` });
  const asked = h('ul', { class: 'asked', 'aria-label': 'Requests of the view', role: 'list' });
  const files = h('div');
  const warned = h('ul', { class: 'asked', 'aria-label': 'Warnings of the view', role: 'list' });
  let open = 0; // requests under way
  let ready = false;
  let farewell = null;
  let shownFiles = 0;

  const send = (message) => frame.contentWindow?.postMessage({ jsonrpc: '2.0', ...message }, view.origin);
  const showFiles = (ids) => {
    if (ids.length === shownFiles) return;
    shownFiles = ids.length;
    files.replaceChildren(chips(ids, 'Files of the view'));
  };

  const showState = (state) => {
    showFiles(state.files);
    warned.replaceChildren(...state.warnings.slice(0, SHOWN).map((text) => h('li', {}, cut(text))));
  };

  async function look() { // the browser reports to the server, which no message of the view follows
    if (frame.isConnected) await post(address(['views', call.id]), { method: 'ping', params: {}, request: false }).then(showState, () => null);
  }

  async function answer({ id, method, params }) {
    if (open >= OPEN) return { error: { code: REFUSED, message: `more than ${OPEN} requests wait for their answer` } };
    open += 1;
    try {
      const reply = await post(address(['views', call.id]), { method, params, request: id !== undefined });
      showState(reply);
      const text = told(method, params, reply.answer?.error !== undefined || reply.answer?.result?.isError === true);
      if (text && asked.children.length < SHOWN) asked.append(h('li', {}, text));
      return reply.answer;
    } catch (error) {
      return { error: { code: REFUSED, message: error.message } };
    } finally {
      open -= 1;
    }
  }

  function begin() {
    if (ready) return;
    ready = true;
    send({ method: 'ui/notifications/tool-input', params: { arguments: view.given.arguments } });
    send({ method: 'ui/notifications/tool-result', params: view.given.result });
  }

  async function receive({ source, origin, data }) {
    if (!frame.isConnected) {
      stop();
      return;
    }
    if (source !== frame.contentWindow || origin !== view.origin || !isObject(data) || data.jsonrpc !== '2.0') return;
    const { id, method } = data;
    const params = data.params ?? {};
    if (typeof method !== 'string') {
      if (id === 'teardown') farewell?.();
      return;
    }
    if (!isObject(params)) return;
    if (id === undefined) {
      if (method === `${OWN}proxy-ready`) {
        ready = false; // also when the page has moved the frame, which loads it again
        send({ method: `${OWN}resource-ready`, params: { html: view.html, sandbox: SANDBOX, allow: view.allow } });
      } else if (method === 'ui/notifications/initialized') begin();
      else if (method === 'ui/notifications/size-changed' && Number.isFinite(params.height)) frame.style.height = `${Math.min(Math.max(Math.ceil(params.height), LOWEST), HIGHEST)}px`;
      return;
    }
    if ((typeof id !== 'string' && typeof id !== 'number') || method.startsWith(OWN)) return;
    send({ id, ...(await answer({ id, method, params })) });
  }

  const themes = new MutationObserver(() => send({ method: 'ui/notifications/host-context-changed', params: { theme: theme() } }));
  function stop() {
    removeEventListener('message', receive);
    themes.disconnect();
  }

  const close = button('Close view', async () => {
    close.disabled = true;
    const over = new Promise((resolve) => (farewell = resolve));
    send({ id: 'teardown', method: 'ui/resource-teardown', params: {} });
    await Promise.race([over, new Promise((resolve) => setTimeout(resolve, TEARDOWN))]);
    stop();
    await remove(address(['views', call.id])).catch(() => null);
    frame.replaceWith(h('p', { class: 'muted' }, 'The view is closed.'));
    close.remove();
  }, { class: 'quiet small' });

  addEventListener('message', receive);
  themes.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
  place.replaceChildren(h('div', { class: 'row' }, h('strong', {}, 'View'), h('span', { class: 'muted url' }, view.uri), h('div', { class: 'grow' }), close), frame, warned, asked, files);
  showState(view);
  for (const after of LOOKS) setTimeout(look, after);
}
