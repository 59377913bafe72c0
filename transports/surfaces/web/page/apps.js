// Connected apps with their capabilities; the form of the chosen capability beside them.
import { address, get, post, remove } from './api.js';
import { busy, button, confirm, h, notice, say } from './dom.js';
import { on } from './events.js';
import { plural } from './format.js';
import { openCapability } from './run.js';

const TRANSPORTS = [['', 'auto'], ['playwright', 'playwright'], ['postmessage', 'postmessage'], ['websocket', 'websocket']];
const OPEN = 2; // apps whose capabilities are unfolded at first

let apps = [];
const names = h('datalist', { id: 'app-names' }); // apps of the settings file
let chosen = null; // {session, name}

const list = h('div', { class: 'stack' });
const work = h('div', { class: 'work card-like stack', id: 'work' });
const search = h('input', { type: 'search', placeholder: 'Search capabilities', 'aria-label': 'Search capabilities', oninput: () => render() });

function connectForm() {
  const url = h('input', { id: 'app-url', type: 'text', inputmode: 'url', list: 'app-names', required: true, placeholder: 'https://app.example/', spellcheck: 'false' });
  const transport = h('select', { id: 'app-transport', 'aria-label': 'Transport' }, TRANSPORTS.map(([value, text]) => h('option', { value }, text)));
  const connect = h('button', { class: 'primary' }, 'Connect');
  const node = h('form', { class: 'card-like stack', 'aria-label': 'Connect an app' },
    h('label', { for: 'app-url' }, 'Address of an app (http, https, ws, wss), or its name'), url, names,
    h('div', { class: 'row' }, h('label', { class: 'inline', for: 'app-transport' }, 'Transport', transport), h('div', { class: 'grow' }), connect));
  node.addEventListener('submit', (event) => {
    event.preventDefault();
    busy(connect, async () => {
      const app = await post(address(['apps']), { url: url.value, ...(transport.value && { transport: transport.value }) });
      say(`${app.name} is connected`);
      url.value = '';
      await load();
    });
  });
  return node;
}

function capability(app, one) {
  const current = chosen?.session === app.session && chosen.name === one.name;
  const flags = [one.experimental && 'experimental', one.deprecated && 'deprecated', one.available === false && 'unavailable', one.view && 'view'].filter(Boolean);
  const node = button([h('span', {}, h('span', { class: 'name' }, one.name), flags.map((flag) => h('span', { class: 'flag' }, flag))), h('span', { class: 'muted' }, one.description ?? '')], () => {
    chosen = { session: app.session, name: one.name };
    for (const other of list.querySelectorAll('[aria-current]')) other.removeAttribute('aria-current');
    node.setAttribute('aria-current', 'true');
    openCapability(app, one.name, work);
  }, { class: 'capability', 'aria-current': current });
  return h('li', {}, node);
}

function appBox(app, index) {
  const text = search.value.trim().toLowerCase();
  const fitting = app.capabilities.filter((one) => `${one.name}\n${one.description ?? ''}`.toLowerCase().includes(text));
  const disconnect = button('Disconnect', async () => {
    if (!(await confirm(`Disconnect ${app.name}? Its running calls end.`, 'Disconnect'))) return;
    await busy(disconnect, async () => {
      await remove(address(['apps', app.session]));
      await load();
    });
  }, { class: 'quiet small', 'aria-label': `Disconnect ${app.name}` });
  const open = index < OPEN || text !== '' || chosen?.session === app.session;
  return h('details', { class: 'app card-like', open, 'data-session': app.session },
    h('summary', {}, h('strong', {}, app.name), h('span', { class: 'muted' }, ` ${app.version ?? ''} · ${app.transport}`)),
    h('p', { class: 'muted url' }, `${app.url}${app.signed_in_as ? ` · signed in as ${app.signed_in_as}` : ''} · session ${app.session}`),
    h('div', { class: 'row' }, h('span', { class: 'muted' }, plural(app.capabilities.length, 'capability', 'capabilities')), h('div', { class: 'grow' }), disconnect),
    h('ul', { class: 'capabilities', role: 'list', 'aria-label': `Capabilities of ${app.name}` }, fitting.map((one) => capability(app, one))));
}

function render() {
  const wasOpen = new Map([...list.querySelectorAll('.app')].map((node) => [node.dataset.session, node.open]));
  const focused = document.activeElement?.closest('.app')?.dataset.session;
  list.replaceChildren(...apps.map((app, index) => {
    const node = appBox(app, index);
    if (search.value === '' && wasOpen.has(app.session)) node.open = wasOpen.get(app.session);
    return node;
  }));
  if (focused) list.querySelector(`[data-session="${CSS.escape(focused)}"] summary`)?.focus();
  search.hidden = !apps.length;
  if (!apps.length) list.append(h('p', { class: 'muted' }, 'No app is connected. ', h('code', {}, 'abp fixture'), ' starts one to try; its address goes into the field above.'));
  if (chosen && !apps.some((app) => app.session === chosen.session)) chosen = null;
  if (!chosen) work.replaceChildren(h('p', { class: 'muted center' }, apps.length ? 'Choose a capability: its form appears here.' : 'What a connected app can do appears here.'));
}

async function load() {
  try {
    const known = await get(address(['apps']));
    apps = known.apps;
    names.replaceChildren(...known.names.map((value) => h('option', { value })));
    render();
  } catch (error) {
    if (error.status !== 401) notice(error.message);
  }
}

/** Fill the section of the apps. Later calls do nothing. */
export function startApps(section) {
  if (section.hasChildNodes()) return;
  section.append(
    h('div', { class: 'title' }, h('h1', { id: 'apps-title' }, 'Apps')),
    h('div', { class: 'columns' }, h('div', { class: 'stack' }, connectForm(), search, list), work));
  for (const name of ['reset', 'app_connected', 'app_disconnected', 'capabilities_changed']) on(name, load);
  load();
}
