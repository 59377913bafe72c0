// Live view of a call: the page's half of a host for views of MCP servers (MCP Apps). The view runs in a sandbox proxy on an origin of
// its own; each of its messages is checked here for its sender, and answered by the server (transports/surfaces/web/_views.py).
import { address, get, post, remove } from './api.js';
import { chips } from './chips.js';
import { button, h } from './dom.js';

const SANDBOX = 'allow-scripts allow-same-origin allow-forms';
const SANDBOX_METHODS = 'ui/notifications/sandbox-'; // between the host and the proxy, never of the view itself
const MAX_REQUESTS = 16; // requests of the view that wait for their answer
const MAX_LISTED = 50; // listed requests and warnings
const MAX_TEXT = 300; // characters of a text in the list
const MIN_HEIGHT = 120; // pixels
const MAX_HEIGHT = 900;
const TEARDOWN_TIMEOUT = 1000; // ms
const REFUSED = -32000;
const CHECKS = [500, 2000, 5000]; // ms after which the server is asked what the view's policy has forbidden

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const cut = (text) => (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text);

function theme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen !== 'auto') return chosen;
  return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}

/** Describe a request of the view to people; null for requests that are not listed. */
function describe(method, params, refused) {
  const suffix = refused ? ' (refused)' : '';
  if (method === 'ui/open-link') {
    if (refused) return ['Link refused: ', cut(String(params.url))];
    const link = { href: params.url, target: '_blank', rel: 'noopener noreferrer' };
    return ['Link to open: ', h('a', link, cut(params.url))];
  }
  if (method === 'ui/message') {
    const blocks = Array.isArray(params.content) ? params.content : [];
    const texts = blocks.map((block) => block?.text).filter((text) => typeof text === 'string');
    return [`Message${suffix}: `, cut(texts.join(' '))];
  }
  if (method === 'ui/update-model-context') return [`For the model${suffix}: `, cut(JSON.stringify(params))];
  if (method === 'ui/download-file') return refused ? ['File refused'] : null;
  if (method === 'tools/call') return [`Called ${cut(String(params.name))}${suffix}`];
  return null;
}

/** Show the view of a call in `place`. */
export async function showView(call, place) {
  place.replaceChildren(h('p', { class: 'muted' }, 'Loading the view …'));
  const environment = {
    theme: theme(),
    locale: navigator.language,
    timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    width: Math.max(Math.round(place.clientWidth), MIN_HEIGHT),
    height: MAX_HEIGHT,
  };
  const path = address(['views', call.id]);
  let view;
  try {
    view = await get(address(['views', call.id], environment));
  } catch (error) {
    place.replaceChildren(h('p', { class: 'muted' }, `No live view: ${error.message}`));
    return;
  }

  const frame = h('iframe', {
    class: 'live',
    title: `View of ${call.capability}`,
    sandbox: SANDBOX,
    allow: view.allow,
    src: `${view.origin}/`,
  });
  const requests = h('ul', { class: 'asked', 'aria-label': 'Requests of the view', role: 'list' });
  const warnings = h('ul', { class: 'asked', 'aria-label': 'Warnings of the view', role: 'list' });
  const files = h('div');
  let running = 0; // requests that wait for their answer
  let initialized = false;
  let onTeardown = null;
  let shownFiles = 0;

  const send = (message) => frame.contentWindow?.postMessage({ jsonrpc: '2.0', ...message }, view.origin);
  const showFiles = (ids) => {
    if (ids.length === shownFiles) return;
    shownFiles = ids.length;
    files.replaceChildren(chips(ids, 'Files of the view'));
  };

  const showState = (state) => {
    showFiles(state.files);
    warnings.replaceChildren(...state.warnings.slice(0, MAX_LISTED).map((text) => h('li', {}, cut(text))));
  };

  // What the policy forbids is reported to the server by the browser, without a message of the view.
  async function check() {
    if (!frame.isConnected) return;
    try {
      showState(await post(path, { method: 'ping', params: {}, request: false }));
    } catch {
      // The view may be closed.
    }
  }

  const refusal = (message) => ({ error: { code: REFUSED, message } });

  async function answer({ id, method, params }) {
    if (running >= MAX_REQUESTS) return refusal(`more than ${MAX_REQUESTS} requests wait for their answer`);
    running += 1;
    try {
      const state = await post(path, { method, params, request: id !== undefined });
      showState(state);
      const refused = state.answer?.error !== undefined || state.answer?.result?.isError === true;
      const text = describe(method, params, refused);
      if (text && requests.children.length < MAX_LISTED) requests.append(h('li', {}, text));
      return state.answer;
    } catch (error) {
      return refusal(error.message);
    } finally {
      running -= 1;
    }
  }

  function initialize() {
    if (initialized) return;
    initialized = true;
    send({ method: 'ui/notifications/tool-input', params: { arguments: view.given.arguments } });
    send({ method: 'ui/notifications/tool-result', params: view.given.result });
  }

  function resize(height) {
    if (!Number.isFinite(height)) return;
    frame.style.height = `${Math.min(Math.max(Math.ceil(height), MIN_HEIGHT), MAX_HEIGHT)}px`;
  }

  function notified(method, params) {
    if (method === `${SANDBOX_METHODS}proxy-ready`) {
      initialized = false; // also when the page has moved the frame, which loads it again
      send({
        method: `${SANDBOX_METHODS}resource-ready`,
        params: { html: view.html, sandbox: SANDBOX, allow: view.allow },
      });
    } else if (method === 'ui/notifications/initialized') {
      initialize();
    } else if (method === 'ui/notifications/size-changed') {
      resize(params.height);
    }
  }

  async function receive({ source, origin, data }) {
    if (!frame.isConnected) {
      stop();
      return;
    }
    if (source !== frame.contentWindow || origin !== view.origin) return;
    if (!isObject(data) || data.jsonrpc !== '2.0') return;
    const { id, method } = data;
    const params = data.params ?? {};
    if (typeof method !== 'string') {
      if (id === 'teardown') onTeardown?.();
      return;
    }
    if (!isObject(params)) return;
    if (id === undefined) {
      notified(method, params);
      return;
    }
    if ((typeof id !== 'string' && typeof id !== 'number') || method.startsWith(SANDBOX_METHODS)) return;
    send({ id, ...(await answer({ id, method, params })) });
  }

  const themes = new MutationObserver(() => {
    send({ method: 'ui/notifications/host-context-changed', params: { theme: theme() } });
  });

  function stop() {
    removeEventListener('message', receive);
    themes.disconnect();
  }

  const close = button('Close view', async () => {
    close.disabled = true;
    await new Promise((resolve) => {
      onTeardown = resolve;
      setTimeout(resolve, TEARDOWN_TIMEOUT);
      send({ id: 'teardown', method: 'ui/resource-teardown', params: {} });
    });
    stop();
    await remove(path).catch(() => null);
    frame.replaceWith(h('p', { class: 'muted' }, 'The view is closed.'));
    close.remove();
  }, { class: 'quiet small' });

  addEventListener('message', receive);
  themes.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
  place.replaceChildren(
    h('div', { class: 'row' },
      h('strong', {}, 'View'),
      h('span', { class: 'muted url' }, view.uri),
      h('div', { class: 'grow' }),
      close),
    frame, warnings, requests, files);
  showState(view);
  for (const delay of CHECKS) setTimeout(check, delay);
}
