// Links to artifacts as chips, for a call and for its view.
import { h, hrefOf } from './dom.js';
import { plural, size } from './format.js';
import { metaOf } from './grid.js';
import { thumbnail } from './thumbs.js';

const SHOWN = 60; // links in one list

/** A link that shows the artifact's thumbnail and name as soon as its metadata has arrived. */
function chip(id) {
  const link = h('a', { class: 'chip', href: hrefOf(id) }, id);
  const describe = (meta) => link.replaceChildren(
    thumbnail(meta),
    h('span', { class: 'name' }, meta.filename),
    h('span', { class: 'facts' }, size(meta.size_bytes)));
  metaOf(id).then(describe, () => link.replaceWith(h('span', { class: 'chip muted' }, `${id} (gone)`)));
  return h('li', {}, link);
}

export function chips(ids, label) {
  const left = ids.length - SHOWN;
  return h('ul', { class: 'chips', role: 'list', 'aria-label': label },
    ids.slice(0, SHOWN).map(chip),
    left > 0 && h('li', { class: 'muted' }, `and ${plural(left, 'more file')} in the gallery`));
}
