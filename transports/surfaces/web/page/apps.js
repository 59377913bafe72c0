// Connected apps with their capabilities; the form of the chosen capability beside them.
import { address, get, post, remove } from './api.js';
import { busy, button, confirm, h, say, searchField, showError } from './dom.js';
import { on } from './events.js';
import { plural } from './format.js';
import { openCapability } from './run.js';

const TRANSPORTS = [['', 'auto'], ['playwright', 'playwright'], ['postmessage', 'postmessage'], ['websocket', 'websocket'], ['webmcp', 'webmcp']];
const OPEN = 2; // apps whose capabilities are unfolded at first

let apps = [];
let chosen = null; // {session, name}

const names = h('datalist', { id: 'app-names' }); // apps of the settings file
const list = h('div', { class: 'stack' });
const work = h('div', { class: 'work card-like stack', id: 'work' });
const search = searchField('Search capabilities', () => render());

function connectForm() {
  const url = h('input', {
    id: 'app-url',
    type: 'text',
    inputmode: 'url',
    list: 'app-names',
    required: true,
    placeholder: 'https://app.example/',
    spellcheck: 'false',
  });
  const transport = h('select', { id: 'app-transport', 'aria-label': 'Transport' },
    TRANSPORTS.map(([value, text]) => h('option', { value }, text)));
  const connect = h('button', { class: 'primary' }, 'Connect');
  const node = h('form', { class: 'card-like stack', 'aria-label': 'Connect an app' },
    h('label', { for: 'app-url' }, 'Address of an app (http, https, ws, wss), or its name'),
    url,
    names,
    h('div', { class: 'row' },
      h('label', { class: 'inline', for: 'app-transport' }, 'Transport', transport),
      h('div', { class: 'grow' }),
      connect));
  node.addEventListener('submit', (event) => {
    event.preventDefault();
    busy(connect, async () => {
      const options = transport.value ? { transport: transport.value } : {};
      const app = await post(address(['apps']), { url: url.value, ...options });
      say(`${app.name} is connected`);
      url.value = '';
      await load();
    });
  });
  return node;
}

function flagsOf(capability) {
  return [
    capability.experimental && 'experimental',
    capability.deprecated && 'deprecated',
    capability.available === false && 'unavailable',
    capability.view && 'view',
  ].filter(Boolean);
}

function entry(app, capability) {
  const { name, description = '' } = capability;
  const flags = flagsOf(capability).map((flag) => h('span', { class: 'flag' }, flag));
  const label = [
    h('span', {}, h('span', { class: 'name' }, name), flags),
    h('span', { class: 'muted' }, description),
  ];
  const isCurrent = chosen?.session === app.session && chosen.name === name;
  const node = button(label, () => {
    chosen = { session: app.session, name };
    for (const other of list.querySelectorAll('[aria-current]')) other.removeAttribute('aria-current');
    node.setAttribute('aria-current', 'true');
    openCapability(app, name, work);
  }, { class: 'capability', 'aria-current': isCurrent });
  return h('li', {}, node);
}

function matches({ name, description }, text) {
  return `${name}\n${description ?? ''}`.toLowerCase().includes(text);
}

function appBox(app, index) {
  const text = search.value.trim().toLowerCase();
  const shown = app.capabilities.filter((capability) => matches(capability, text));
  const user = app.signed_in_as ? ` · signed in as ${app.signed_in_as}` : '';
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
    h('p', { class: 'muted url' }, `${app.url}${user} · session ${app.session}`),
    h('div', { class: 'row' },
      h('span', { class: 'muted' }, plural(app.capabilities.length, 'capability', 'capabilities')),
      h('div', { class: 'grow' }),
      disconnect),
    h('ul', { class: 'capabilities', role: 'list', 'aria-label': `Capabilities of ${app.name}` },
      shown.map((capability) => entry(app, capability))));
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
  if (!apps.length) {
    list.append(h('p', { class: 'muted' },
      'No app is connected. ', h('code', {}, 'abp fixture'), ' starts one to try; its address goes into the field above.'));
  }
  if (chosen && !apps.some((app) => app.session === chosen.session)) chosen = null;
  if (!chosen) {
    const hint = apps.length ? 'Choose a capability: its form appears here.' : 'What a connected app can do appears here.';
    work.replaceChildren(h('p', { class: 'muted center' }, hint));
  }
}

async function load() {
  try {
    const answer = await get(address(['apps']));
    apps = answer.apps;
    names.replaceChildren(...answer.names.map((value) => h('option', { value })));
    render();
  } catch (error) {
    showError(error);
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
