// Resources of connected MCP servers: a list per server, loaded on demand; the chosen resource is shown beside the list.
import { address, get, post } from './api.js';
import { busy, button, copyButton, h, hrefOf, joined, say, scroller, searchField, showError, showHeading } from './dom.js';
import { on } from './events.js';
import { plural, size } from './format.js';
import { preview } from './previews.js';

const SHOWN = 500; // listed resources of one server

let servers = []; // {session, name, resources, templates, total, watched} or {session, name, problem}
let chosen = null; // {session, uri}

const list = h('div', { class: 'stack' });
const work = h('div', { class: 'work card-like stack', id: 'resource' });
const search = searchField('Search resources', () => render());

const nameOf = (resource) => resource.title || resource.name || resource.uri;

function matches(resource, text) {
  return `${nameOf(resource)}\n${resource.uri}\n${resource.description ?? ''}`.toLowerCase().includes(text);
}

function entry(server, resource) {
  const { uri } = resource;
  const facts = joined(
    resource.mimeType,
    Number.isFinite(resource.size) && size(resource.size),
    server.watched.has(uri) && 'watched');
  const label = [
    h('span', { class: 'name' }, nameOf(resource)),
    h('span', { class: 'muted' }, uri),
    facts && h('span', { class: 'muted' }, facts),
  ];
  return h('li', {}, button(label, () => open(server, uri), {
    class: 'capability',
    'aria-current': chosen?.session === server.session && chosen.uri === uri,
    title: resource.description || null,
  }));
}

/** A field for a URI, optionally from a template. */
function addressForm(server) {
  const id = `uri-${server.session}`;
  const placeholder = server.templates[0]?.uriTemplate ?? 'scheme://…';
  const uri = h('input', { id, required: true, spellcheck: 'false', placeholder });
  const take = (template) => {
    uri.value = template;
    uri.focus();
    const start = template.indexOf('{');
    if (start >= 0) uri.setSelectionRange(start, template.indexOf('}', start) + 1);
  };
  const templates = server.templates.map(({ uriTemplate, name, description }) =>
    button(uriTemplate, () => take(uriTemplate), {
      class: 'quiet small template',
      title: description || name || null,
      'aria-label': `Use the template ${uriTemplate}`,
    }));
  const form = h('form', { class: 'stack tight', 'aria-label': `Read an address of ${server.name}` },
    h('label', { for: id }, 'Address'),
    h('div', { class: 'row together' }, uri, h('button', {}, 'Read')),
    templates);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    open(server, uri.value.trim());
  });
  return form;
}

function box(server) {
  const name = h('strong', {}, server.name);
  const attributes = { class: 'app card-like', open: true, 'data-session': server.session };
  if (server.problem) {
    return h('details', attributes, h('summary', {}, name), h('p', { class: 'problem' }, server.problem));
  }
  const text = search.value.trim().toLowerCase();
  const matching = server.resources.filter((resource) => matches(resource, text));
  const left = matching.length - SHOWN;
  return h('details', attributes,
    h('summary', {}, name, h('span', { class: 'muted' }, ` · ${plural(server.total, 'resource')}`)),
    addressForm(server),
    h('ul', { class: 'capabilities', role: 'list', 'aria-label': `Resources of ${server.name}` },
      matching.slice(0, SHOWN).map((resource) => entry(server, resource)),
      left > 0 && h('li', { class: 'muted' }, `and ${plural(left, 'more')}; search for them`)));
}

function render() {
  const folded = new Set([...list.querySelectorAll('.app:not([open])')].map((node) => node.dataset.session));
  list.replaceChildren(...servers.map((server) => {
    const node = box(server);
    node.open = !folded.has(server.session);
    return node;
  }));
  search.hidden = !servers.length;
  if (!servers.length) {
    list.append(h('p', { class: 'muted' },
      'No connected server has resources. ', h('code', {}, 'abp serve --app mcp+stdio:COMMAND'), ' connects one.'));
  }
  if (chosen && !servers.some((server) => server.session === chosen.session)) chosen = null;
  if (!chosen) {
    const hint = servers.length ? 'Choose a resource: what is in it appears here.' : 'What is in a resource appears here.';
    work.replaceChildren(h('p', { class: 'muted center' }, hint));
  }
}

function contentBox({ uri, mime_type: mimeType, text, artifact }, server) {
  const facts = joined(mimeType ?? artifact?.mime_type, artifact && size(artifact.size_bytes), server.name);
  return h('section', { class: 'stack tight', 'aria-label': uri ?? 'Content' },
    h('div', { class: 'row' },
      h('span', { class: 'muted' }, facts),
      h('div', { class: 'grow' }),
      artifact && [
        h('a', { class: 'button', href: hrefOf(artifact.id) }, 'Open as artifact'),
        h('a', { class: 'button', href: `${artifact.url}?download`, download: '' }, 'Download'),
      ]),
    artifact ? preview(artifact) : scroller('Text', text, { tag: 'pre', kind: 'text sunken' }));
}

function watchButton(server, uri) {
  const toggle = async () => {
    const path = address(['resources', server.session]);
    if (server.watched.has(uri)) {
      await post(path, { unwatch: uri });
      server.watched.delete(uri);
      say('no longer watched');
    } else {
      await post(path, { watch: uri });
      server.watched.add(uri);
      say('watched: changes are shown here');
    }
    update();
    render();
  };
  const node = button('', () => busy(node, toggle), { class: 'small' });
  const update = () => {
    const isWatched = server.watched.has(uri);
    node.textContent = isWatched ? 'Stop watching' : 'Watch';
    node.setAttribute('aria-pressed', String(isWatched));
  };
  update();
  return node;
}

/** Read a resource and show it. `fresh` bypasses the cache. */
async function open(server, uri, { fresh = false, focus = true } = {}) {
  const opened = { session: server.session, uri };
  chosen = opened;
  render();
  const listed = server.resources.find((resource) => resource.uri === uri);
  const heading = h('h2', { id: 'resource-title', tabindex: -1 }, listed ? nameOf(listed) : uri);
  const again = button('Read again', () => open(server, uri, { fresh: true, focus: false }), { class: 'small' });
  const body = h('div', { class: 'stack' }, h('p', { class: 'muted', role: 'status' }, 'Reading …'));
  const parts = [
    heading,
    h('p', { class: 'url copied' }, h('code', {}, uri), copyButton(uri, 'URI')),
    listed?.description && h('p', {}, listed.description),
    h('div', { class: 'row' }, again, watchButton(server, uri)),
    h('p', { class: 'note', hidden: true, id: 'resource-changed', role: 'status' }),
    body,
  ];
  work.replaceChildren(...parts.filter(Boolean));
  if (focus) showHeading(heading);
  try {
    const answer = await get(address(['resources', server.session, uri], fresh ? { fresh: 1 } : {}));
    if (chosen !== opened) return;
    body.replaceChildren(
      ...answer.warnings.map((text) => h('p', { class: 'note' }, text)),
      ...answer.contents.map((content) => contentBox(content, server)));
    if (!answer.contents.length) body.append(h('p', { class: 'muted' }, 'There is nothing in it.'));
    say(`${uri} read`);
  } catch (error) {
    if (chosen !== opened || error.status === 401) return;
    body.replaceChildren(h('p', { class: 'problem', role: 'alert' }, error.message));
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
    showError(error);
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
