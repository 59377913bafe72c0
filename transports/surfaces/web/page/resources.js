// Resources of connected MCP servers: a list per server, loaded on demand; the chosen resource is shown beside the list.
import { address, get, post } from './api.js';
import { busy, button, copyButton, h, notice, say } from './dom.js';
import { on } from './events.js';
import { plural, size } from './format.js';
import { preview } from './previews.js';

const SHOWN = 500; // listed resources of one server

let servers = []; // {session, name, resources, templates, total, watched} or {session, name, problem}
let chosen = null; // {session, uri}

const list = h('div', { class: 'stack' });
const work = h('div', { class: 'work card-like stack', id: 'resource' });
const search = h('input', { type: 'search', placeholder: 'Search resources', 'aria-label': 'Search resources', oninput: () => render() });

const nameOf = (one) => one.title || one.name || one.uri;

function entry(server, one) {
  const current = chosen?.session === server.session && chosen.uri === one.uri;
  const facts = [one.mimeType, Number.isFinite(one.size) && size(one.size), server.watched.has(one.uri) && 'watched'].filter(Boolean).join(' · ');
  const label = [h('span', { class: 'name' }, nameOf(one)), h('span', { class: 'muted' }, one.uri), facts && h('span', { class: 'muted' }, facts)];
  return h('li', {}, button(label, () => open(server, one.uri), { class: 'capability', 'aria-current': current, title: one.description || null }));
}

/** A field for a URI, optionally from a template. */
function addressForm(server) {
  const id = `uri-${server.session}`;
  const uri = h('input', { id, required: true, spellcheck: 'false', placeholder: server.templates[0]?.uriTemplate ?? 'scheme://…' });
  const templates = server.templates.map((one) => button(one.uriTemplate, () => {
    uri.value = one.uriTemplate;
    uri.focus();
    const start = uri.value.indexOf('{');
    if (start >= 0) uri.setSelectionRange(start, uri.value.indexOf('}', start) + 1);
  }, { class: 'quiet small template', title: one.description || one.name || null, 'aria-label': `Use the template ${one.uriTemplate}` }));
  const form = h('form', { class: 'stack tight', 'aria-label': `Read an address of ${server.name}` },
    h('label', { for: id }, 'Address'), h('div', { class: 'row together' }, uri, h('button', {}, 'Read')), templates);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    open(server, uri.value.trim());
  });
  return form;
}

function box(server) {
  if (server.problem) {
    return h('details', { class: 'app card-like', open: true, 'data-session': server.session }, h('summary', {}, h('strong', {}, server.name)), h('p', { class: 'problem' }, server.problem));
  }
  const text = search.value.trim().toLowerCase();
  const fitting = server.resources.filter((one) => `${nameOf(one)}\n${one.uri}\n${one.description ?? ''}`.toLowerCase().includes(text));
  const more = fitting.length > SHOWN && h('li', { class: 'muted' }, `and ${plural(fitting.length - SHOWN, 'more')}; search for them`);
  return h('details', { class: 'app card-like', open: true, 'data-session': server.session },
    h('summary', {}, h('strong', {}, server.name), h('span', { class: 'muted' }, ` · ${plural(server.total, 'resource')}`)),
    addressForm(server),
    h('ul', { class: 'capabilities', role: 'list', 'aria-label': `Resources of ${server.name}` }, fitting.slice(0, SHOWN).map((one) => entry(server, one)), more));
}

function render() {
  const folded = new Set([...list.querySelectorAll('.app:not([open])')].map((node) => node.dataset.session));
  list.replaceChildren(...servers.map((server) => {
    const node = box(server);
    node.open = !folded.has(server.session);
    return node;
  }));
  search.hidden = !servers.length;
  if (!servers.length) list.append(h('p', { class: 'muted' }, 'No connected server has resources. ', h('code', {}, 'abp serve --app mcp+stdio:COMMAND'), ' connects one.'));
  if (chosen && !servers.some((server) => server.session === chosen.session)) chosen = null;
  if (!chosen) work.replaceChildren(h('p', { class: 'muted center' }, servers.length ? 'Choose a resource: what is in it appears here.' : 'What is in a resource appears here.'));
}

function content(one, server) {
  const { artifact } = one;
  const about = [one.mime_type ?? artifact?.mime_type, artifact && size(artifact.size_bytes), server.name].filter(Boolean).join(' · ');
  return h('section', { class: 'stack tight', 'aria-label': one.uri ?? 'Content' },
    h('div', { class: 'row' }, h('span', { class: 'muted' }, about), h('div', { class: 'grow' }),
      artifact && h('a', { class: 'button', href: `#artifact=${encodeURIComponent(artifact.id)}` }, 'Open as artifact'),
      artifact && h('a', { class: 'button', href: `${artifact.url}?download`, download: '' }, 'Download')),
    artifact ? preview(artifact) : h('pre', { class: 'text scroller sunken', tabindex: 0, role: 'region', 'aria-label': 'Text' }, one.text ?? ''));
}

function watchButton(server, uri) {
  const node = button('', () => busy(node, async () => {
    const before = server.watched.has(uri);
    await post(address(['resources', server.session]), before ? { unwatch: uri } : { watch: uri });
    if (before) server.watched.delete(uri);
    else server.watched.add(uri);
    say(before ? 'no longer watched' : 'watched: changes are shown here');
    update();
    render();
  }), { class: 'small' });
  const update = () => {
    node.textContent = server.watched.has(uri) ? 'Stop watching' : 'Watch';
    node.setAttribute('aria-pressed', String(server.watched.has(uri)));
  };
  update();
  return node;
}

/** Read a resource and show it. `fresh` bypasses the cache. */
async function open(server, uri, { fresh = false, focus = true } = {}) {
  const mine = (chosen = { session: server.session, uri });
  render();
  const listed = server.resources.find((one) => one.uri === uri);
  const heading = h('h2', { id: 'resource-title', tabindex: -1 }, listed ? nameOf(listed) : uri);
  const again = button('Read again', () => open(server, uri, { fresh: true, focus: false }), { class: 'small' });
  const body = h('div', { class: 'stack' }, h('p', { class: 'muted', role: 'status' }, 'Reading …'));
  const parts = [heading,
    h('p', { class: 'url copied' }, h('code', {}, uri), copyButton(uri, 'URI')),
    listed?.description && h('p', {}, listed.description),
    h('div', { class: 'row' }, again, watchButton(server, uri)),
    h('p', { class: 'note', hidden: true, id: 'resource-changed', role: 'status' }), body];
  work.replaceChildren(...parts.filter(Boolean));
  if (focus) heading.focus({ preventScroll: true });
  if (focus && matchMedia('(max-width: 860px)').matches) heading.scrollIntoView();
  try {
    const answer = await get(address(['resources', server.session, uri], fresh ? { fresh: 1 } : {}));
    if (chosen !== mine) return;
    const notes = answer.warnings.map((text) => h('p', { class: 'note' }, text));
    body.replaceChildren(...notes, ...answer.contents.map((one) => content(one, server)), ...(answer.contents.length ? [] : [h('p', { class: 'muted' }, 'There is nothing in it.')]));
    say(`${uri} read`);
  } catch (error) {
    if (chosen === mine && error.status !== 401) body.replaceChildren(h('p', { class: 'problem', role: 'alert' }, error.message));
  }
}

function updated({ session, uri }) {
  const node = document.getElementById('resource-changed');
  if (!node || chosen?.session !== session || chosen.uri !== uri) return;
  node.hidden = false;
  node.textContent = 'The server has changed it since it was read.';
}

async function loadServer(app) {
  try {
    const answer = await get(address(['resources', app.session]));
    return { ...answer, watched: new Set(answer.watched) };
  } catch (error) {
    return { session: app.session, name: app.name, problem: error.message };
  }
}

async function load() {
  try {
    const { apps } = await get(address(['apps']));
    servers = await Promise.all(apps.filter((app) => app.resources).map(loadServer));
    render();
  } catch (error) {
    if (error.status !== 401) notice(error.message);
  }
}

/** Fill the section of the resources. Later calls do nothing. */
export function startResources(section) {
  if (section.hasChildNodes()) return;
  section.append(
    h('div', { class: 'title' }, h('h1', { id: 'resources-title' }, 'Resources')),
    h('div', { class: 'columns' }, h('div', { class: 'stack' }, search, list), work));
  for (const name of ['reset', 'app_connected', 'app_disconnected', 'resources_changed']) on(name, load);
  on('resource_updated', updated);
  load();
}
