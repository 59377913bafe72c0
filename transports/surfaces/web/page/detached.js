// Detached calls: running ones, which can be cancelled here, and the latest ended ones, also of earlier servers.
import { address, remove } from './api.js';
import { calls, running } from './calls.js';
import { busy, button, h } from './dom.js';
import { on } from './events.js';
import { moment } from './format.js';
import { STATES } from './panel.js';

const ENDED = 8; // listed ended calls

function row(call) {
  const [sign, word] = STATES[call.status];
  const cancel = button('Cancel', () => busy(cancel, () => remove(address(['calls', call.id]))), { class: 'small', 'aria-label': `Cancel ${call.capability}` });
  return h('li', { class: 'row detached', 'data-status': call.status },
    h('span', { class: 'mark', 'aria-hidden': true }, sign),
    h('a', { class: 'grow', href: `#call=${encodeURIComponent(call.id)}` }, h('strong', {}, call.capability), h('span', { class: 'muted' }, ` ${call.app ?? call.session} · ${moment(call.started)}`)),
    h('span', { class: 'told' }, word),
    running(call) && cancel);
}

/** Show the list in `place`, which is hidden while the list is empty. */
export function startDetached(place) {
  const list = h('ul', { class: 'stack', role: 'list' });
  const shown = new Map(); // the row of each call, and the state that the row shows
  place.append(h('h2', { id: 'detached-title' }, 'Detached calls'), h('p', { class: 'muted' }, 'They go on without the program that asked, and their answers are kept.'), list);

  function render() {
    const detached = [...calls.values()].filter((call) => call.detached).reverse();
    const wanted = [...detached.filter(running), ...detached.filter((call) => !running(call)).slice(0, ENDED)];
    for (const call of wanted) if (shown.get(call.id)?.status !== call.status) shown.set(call.id, { status: call.status, node: row(call) });
    const ids = new Set(wanted.map((call) => call.id));
    for (const id of shown.keys()) if (!ids.has(id)) shown.delete(id);
    const nodes = wanted.map((call) => shown.get(call.id).node);
    if (nodes.length !== list.children.length || nodes.some((node, index) => list.children[index] !== node)) list.replaceChildren(...nodes);
    place.hidden = wanted.length === 0;
  }

  on('calls_changed', render);
  render();
}
