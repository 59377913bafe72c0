// Grid of artifacts as cards: paged, filtered, with live updates.
import { address, get, upload } from './api.js';
import { addOption, busy, button, byId, h, hrefOf, joined, notice, say, searchField, showError } from './dom.js';
import { emit, on } from './events.js';
import { moment, plural, size } from './format.js';
import { thumbnail } from './thumbs.js';

const PAGE = 60;
const MAX_CARDS = 600; // with more, the first page is loaded again
const TYPES = [
  ['', 'All types'], ['image/', 'Images'], ['application/pdf', 'PDF'], ['audio/', 'Audio'], ['video/', 'Video'],
  ['text/', 'Text'], ['application/json', 'JSON'], ['application/', 'Other data'],
];

/** Metadata of all artifacts seen so far, by id: other views refer to artifacts only by id. */
const seen = new Map();

export async function metaOf(id) {
  return seen.get(id) ?? remember(await get(address(['artifacts', id, 'meta'])));
}

/** The artifacts seen so far, newest first. */
export const recent = () => [...seen.values()].sort((a, b) => String(b.created).localeCompare(String(a.created)));

function remember(meta) {
  seen.set(meta.id, meta);
  emit('artifact_seen', meta);
  return meta;
}

/** The filters of the artifacts: their form, the query for the server, and the same rules for artifacts that arrive live. */
function filters(changed) {
  const choice = (id, label, options) =>
    h('select', { id, name: id, 'aria-label': label, onchange: changed },
      options.map(([value, text]) => h('option', { value }, text)));
  const search = searchField('Search names', changed, { delayed: true });
  const capability = choice('capability', 'Capability', [['', 'All capabilities']]);
  const type = choice('type', 'Type', TYPES);
  const session = choice('session', 'Session', [['', 'All sessions']]);
  const clear = h('button', { type: 'reset', class: 'quiet', hidden: true }, 'Clear');
  const node = h('form', { class: 'filters', role: 'search', 'aria-label': 'Filter artifacts' },
    search, capability, type, session, clear);

  node.addEventListener('submit', (event) => event.preventDefault());
  node.addEventListener('reset', () => setTimeout(changed));

  on('artifact_seen', (meta) => {
    addOption(capability, meta.capability);
    addOption(session, meta.session, meta.app ? `${meta.app} · ${meta.session}` : meta.session);
  });

  const query = () => ({ q: search.value.trim(), capability: capability.value, type: type.value, session: session.value });
  return {
    node,
    query,
    active() {
      const some = Object.values(query()).some(Boolean);
      clear.hidden = !some;
      return some;
    },
    /** Return whether an artifact passes the filters, by the same rules as on the server. */
    match(meta) {
      const filter = query();
      const text = [meta.filename, meta.id, meta.capability].join('\n').toLowerCase();
      return text.includes(filter.q.toLowerCase())
        && meta.mime_type.startsWith(filter.type)
        && (!filter.capability || meta.capability === filter.capability)
        && (!filter.session || meta.session === filter.session);
    },
  };
}

const cards = new Map();
let next = null;
let total = 0;
let latestLoad = 0;
let loading = false;
let deferred = []; // events that arrive while a list is being loaded, which may be older

const heading = h('h1', { id: 'artifacts-title' }, 'Artifacts');
const count = h('p', { class: 'muted', id: 'count' });
const retention = h('p', { class: 'muted retention', hidden: true });
const list = h('ul', { class: 'grid', role: 'list', 'aria-label': 'Artifacts, newest first' });
const more = button('Load more', () => busy(more, () => load(next)), { class: 'wide', hidden: true });
const emptyState = h('div', { class: 'empty', hidden: true });
const filter = filters(() => load());
const file = h('input', { type: 'file', multiple: true, hidden: true, 'aria-label': 'Files to upload' });
const add = button('Upload files', () => file.click());

function card(meta, arrived) {
  const link = {
    class: arrived ? 'card arrived' : 'card',
    href: hrefOf(meta.id),
    tabindex: -1,
    'data-id': meta.id,
  };
  return h('li', {},
    h('a', link,
      thumbnail(meta),
      h('span', { class: 'name', title: meta.filename }, meta.filename),
      h('span', { class: 'facts' }, `${size(meta.size_bytes)} · ${moment(meta.created)}`),
      h('span', { class: 'from' }, joined(meta.capability ?? 'uploaded', meta.evidence))));
}

function render() {
  count.textContent = total ? `${plural(total, 'file')}${filter.active() ? ' match' : ''}` : '';
  more.hidden = next === null;
  const empty = cards.size === 0 && !loading;
  emptyState.hidden = !empty;
  list.hidden = cards.size === 0;
  if (empty) emptyState.replaceChildren(...hints());
  if (!list.querySelector('[tabindex="0"]')) list.querySelector('.card')?.setAttribute('tabindex', 0);
}

function hints() {
  if (filter.active()) {
    return [
      h('h2', {}, 'Nothing matches'),
      h('p', {}, 'No artifact fits these filters.'),
      button('Clear filters', () => filter.node.reset()),
    ];
  }
  return [
    h('h2', {}, 'No artifacts yet'),
    h('p', {}, 'Every file that an app produces appears here as soon as it is stored.'),
    h('p', {}, h('a', { href: '#apps' }, 'Connect an app'), ' and run one of its capabilities, or drop files here.'),
  ];
}

async function load(after = null) {
  const thisLoad = ++latestLoad;
  loading = true;
  try {
    const answer = await get(address(['artifacts'], { ...filter.query(), after, limit: PAGE }));
    if (thisLoad !== latestLoad) return; // the filters have changed meanwhile
    const focused = document.activeElement?.dataset?.id;
    if (after === null) {
      cards.clear();
      list.replaceChildren();
    }
    for (const meta of answer.artifacts) {
      if (cards.has(meta.id)) continue;
      cards.set(remember(meta).id, card(meta, false));
      list.append(cards.get(meta.id));
    }
    if (focused && document.activeElement === document.body) cardOf(focused)?.focus({ preventScroll: true });
    retention.hidden = !answer.retention;
    if (answer.retention) retention.textContent = `${answer.retention[0].toUpperCase()}${answer.retention.slice(1)}.`;
    next = answer.next;
    total = answer.total;
  } catch (error) {
    showError(error);
  } finally {
    if (thisLoad === latestLoad) {
      loading = false;
      for (const change of deferred.splice(0)) change();
      render();
    }
  }
}

function stored(meta) {
  remember(meta);
  if (loading) deferred.push(() => stored(meta));
  if (loading || cards.has(meta.id) || !filter.match(meta)) return;
  const node = card(meta, true);
  cards.set(meta.id, node);
  list.prepend(node);
  total += 1;
  say(`New: ${meta.filename}, ${size(meta.size_bytes)}`);
  render();
  if (cards.size > MAX_CARDS && scrollY < innerHeight) load();
}

/** Update an artifact that was stored again, perhaps under another name. */
function updated(meta) {
  seen.set(meta.id, meta);
  if (!cards.has(meta.id)) return;
  const node = card(meta, true);
  cards.get(meta.id).replaceWith(node);
  cards.set(meta.id, node);
}

function removed({ id }) {
  seen.delete(id);
  const node = cards.get(id);
  if (loading) deferred.push(() => removed({ id }));
  if (loading || !node) return;
  const focused = node.contains(document.activeElement);
  const beside = node.nextElementSibling ?? node.previousElementSibling;
  node.remove();
  cards.delete(id);
  total -= 1;
  render();
  if (focused) (beside?.firstChild ?? heading).focus();
}

/** Keyboard navigation: arrow keys move by card and by row, Home and End to the ends; one card is in the tab order. */
function moveFocus(event) {
  const all = [...list.querySelectorAll('.card')];
  const last = all.length - 1;
  const index = all.indexOf(document.activeElement);
  if (index < 0) return;
  const columns = [...list.children].findIndex((item) => item.offsetTop > list.firstChild.offsetTop);
  const row = columns < 1 ? all.length : columns;
  const targets = {
    ArrowLeft: index - 1, ArrowRight: index + 1, ArrowUp: index - row, ArrowDown: index + row, Home: 0, End: last,
  };
  const target = targets[event.key];
  if (target === undefined) return;
  event.preventDefault();
  all[Math.max(0, Math.min(last, target))].focus();
}

list.addEventListener('keydown', moveFocus);
list.addEventListener('focusin', ({ target }) => {
  for (const node of list.querySelectorAll('[tabindex="0"]')) node.setAttribute('tabindex', -1);
  target.closest('.card')?.setAttribute('tabindex', 0);
});

async function send(files) {
  await busy(add, async () => {
    for (const item of files) {
      try {
        stored(await upload(item));
      } catch (error) {
        notice(`${item.name}: ${error.message}`);
      }
    }
  });
}

file.addEventListener('change', async () => {
  await send([...file.files]);
  file.value = '';
});

/** Files dropped anywhere on the page are uploaded, unless a field of a form takes them. */
function acceptDrops() {
  const holdsFiles = (event) => event.dataTransfer?.types.includes('Files');
  document.addEventListener('dragover', (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    document.body.classList.add('dropping');
  });
  document.addEventListener('dragleave', (event) => {
    if (event.relatedTarget === null) document.body.classList.remove('dropping');
  });
  document.addEventListener('drop', (event) => {
    document.body.classList.remove('dropping');
    if (!holdsFiles(event) || event.defaultPrevented || !byId('view-login').hidden) return;
    event.preventDefault();
    location.hash = '#artifacts';
    send([...event.dataTransfer.files]);
  });
}

export function startGrid(section) {
  section.append(
    h('div', { class: 'title' }, heading, count, h('div', { class: 'grow' }), add, file),
    retention, filter.node, list, emptyState, h('p', { class: 'center' }, more));
  acceptDrops();
  on('reset', () => load());
  on('artifact_stored', stored);
  on('artifact_removed', removed);
  on('artifact_updated', updated);
}

/** Return the card of an artifact, or null; the focus returns to the card. */
export const cardOf = (id) => cards.get(id)?.firstChild ?? null;
