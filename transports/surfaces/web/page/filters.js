// Filters of the artifacts: the form, the query for the server, and the same rules for artifacts that arrive live.
import { h } from './dom.js';
import { on } from './events.js';

const TYPES = [
  ['', 'All types'], ['image/', 'Images'], ['application/pdf', 'PDF'], ['audio/', 'Audio'], ['video/', 'Video'],
  ['text/', 'Text'], ['application/json', 'JSON'], ['application/', 'Other data'],
];
const WAIT = 250; // ms after the last key

/** Return the form of the filters; `changed()` is called after a change. */
export function filters(changed) {
  const choice = (id, label, options) =>
    h('select', { id, name: id, 'aria-label': label, onchange: changed },
      options.map(([value, text]) => h('option', { value }, text)));
  const search = h('input', { type: 'search', id: 'q', name: 'q', placeholder: 'Search names', 'aria-label': 'Search names' });
  const capability = choice('capability', 'Capability', [['', 'All capabilities']]);
  const type = choice('type', 'Type', TYPES);
  const session = choice('session', 'Session', [['', 'All sessions']]);
  const clear = h('button', { type: 'reset', class: 'quiet', hidden: true }, 'Clear');
  const node = h('form', { class: 'filters', role: 'search', 'aria-label': 'Filter artifacts' },
    search, capability, type, session, clear);

  let timer = 0;
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(changed, WAIT);
  });
  node.addEventListener('submit', (event) => event.preventDefault());
  node.addEventListener('reset', () => setTimeout(changed));

  const offer = (select, value, text = value) => {
    const isNew = value && ![...select.options].some((option) => option.value === value);
    if (isNew) select.append(h('option', { value }, text));
  };
  on('artifact_seen', (meta) => {
    offer(capability, meta.capability);
    offer(session, meta.session, meta.app ? `${meta.app} · ${meta.session}` : meta.session);
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
