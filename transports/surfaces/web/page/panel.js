// Panel of one call: progress, the app's question, error, files, result. It updates itself.
import { address, remove } from './api.js';
import { calls, callWithResult, running } from './calls.js';
import { tree } from './content.js';
import { busy, button, h } from './dom.js';
import { on } from './events.js';
import { duration, plural, size } from './format.js';
import { metaOf } from './grid.js';
import { thumbnail } from './thumbs.js';

const FILES = 60; // links in one panel

export const STATES = {
  working: ['…', 'Running'], input_required: ['?', 'Waiting for an answer'], completed: ['✓', 'Succeeded'],
  failed: ['✗', 'Failed'], cancelled: ['–', 'Cancelled'], unknown: ['?', 'Unknown whether it ran'],
};

/** Return the progress of a call from 0 to 1, or null if the app reports no total. */
export function share(call) {
  const { value, total } = call.progress ?? {};
  return Number.isFinite(value) && total > 0 ? Math.min(1, Math.max(0, value / total)) : null;
}

/** Links to artifacts, each with a thumbnail as soon as its metadata has arrived. */
export function chips(ids, label) {
  const more = ids.length > FILES && h('li', { class: 'muted' }, `and ${plural(ids.length - FILES, 'more file')} in the gallery`);
  return h('ul', { class: 'chips', role: 'list', 'aria-label': label }, ids.slice(0, FILES).map((id) => {
    const link = h('a', { class: 'chip', href: `#artifact=${encodeURIComponent(id)}` }, id);
    metaOf(id).then(
      (meta) => link.replaceChildren(thumbnail(meta), h('span', { class: 'name' }, meta.filename), h('span', { class: 'facts' }, size(meta.size_bytes))),
      () => link.replaceWith(h('span', { class: 'chip muted' }, `${id} (gone)`)),
    );
    return h('li', {}, link);
  }), more);
}

function answer(call) {
  const box = h('div', { class: 'answer' });
  const node = h('details', {}, h('summary', {}, 'Answer as data'), box);
  node.addEventListener('toggle', async () => {
    try {
      box.append(h('div', { class: 'tree' }, tree((await callWithResult(call.id)).result)));
    } catch (error) {
      box.append(h('p', { class: 'problem' }, error.message));
    }
  }, { once: true });
  return node;
}

/** The evidence of a call. Its module is loaded when the first call with evidence is opened. */
function evidence(call) {
  if (!Object.keys(call.evidence ?? {}).length) return null;
  const box = h('div');
  import('./evidence.js').then((module) => box.replaceWith(module.evidence(call)));
  return box;
}

/** The live view of a call. Its module is loaded with the first one, and the view when its place is in the page. */
function view(call) {
  const box = h('div', { class: 'view stack' });
  import('./view.js').then((module) => module.showView(call, box));
  return box;
}

function outcome(call) {
  return [
    call.status === 'failed' && call.error && h('p', { class: 'problem' }, h('code', {}, call.error.code), ` ${call.error.message}`),
    call.artifacts.length > 0 && chips(call.artifacts, 'Files of this call'),
    call.view && call.status === 'completed' && view(call),
    evidence(call),
    answer(call),
  ].filter(Boolean);
}

/** The progress bar and the app's text; below them a question, which is not built again while the user types. */
function progressOf(id) {
  const bar = h('progress', { 'aria-label': 'Progress', max: 1 });
  const text = h('span', { class: 'muted' });
  const cancel = button('Cancel', () => busy(cancel, () => remove(address(['calls', id]))), { class: 'small' });
  const questionBox = h('div');
  const node = h('div', { class: 'stack' }, h('div', { class: 'row progress' }, bar, text, cancel), questionBox);
  let shownQuestion = 'null';
  async function update(call) {
    const done = share(call);
    if (done === null) bar.removeAttribute('value');
    else bar.value = done;
    text.textContent = [done === null ? '' : `${Math.round(done * 100)} %`, call.progress?.text].filter(Boolean).join(' ');
    const now = JSON.stringify(call.question);
    if (now === shownQuestion) return;
    shownQuestion = now;
    questionBox.replaceChildren(...(call.question ? [(await import('./question.js')).question(call)] : []));
  }
  return { node, update };
}

const panels = new Map();
on('calls_changed', (call) => {
  for (const [id, updates] of panels) if (!call || call.id === id) updates.forEach((update) => update());
});

/** The panel of the call with this id. */
export function panel(id) {
  const state = h('p', { class: 'state', role: 'status' });
  const live = progressOf(id);
  const node = h('div', { class: 'panel stack' }, state, live.node);

  function update() {
    const call = calls.get(id);
    if (!call) return;
    const [sign, word] = STATES[call.status];
    const took = running(call) ? '' : ` after ${duration(call.duration_ms)}`;
    const summary = `${sign} ${word}${took}${call.artifacts.length ? ` with ${plural(call.artifacts.length, 'file')}` : ''}`;
    if (state.textContent !== summary) state.textContent = summary; // a live region should not repeat its text
    node.dataset.status = call.status;
    if (running(call)) live.update(call);
    else {
      node.replaceChildren(state, ...outcome(call));
      panels.get(id)?.delete(update);
    }
  }

  panels.set(id, (panels.get(id) ?? new Set()).add(update));
  update();
  return node;
}
