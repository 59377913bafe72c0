// Panel of one call: progress, the app's question, error, files, result. It updates itself.
import { address, remove } from './api.js';
import { calls, callWithResult, running } from './calls.js';
import { chips } from './chips.js';
import { busy, button, h } from './dom.js';
import { on } from './events.js';
import { duration, plural } from './format.js';

export const STATES = {
  working: ['…', 'Running'], input_required: ['?', 'Waiting for an answer'], completed: ['✓', 'Succeeded'],
  failed: ['✗', 'Failed'], cancelled: ['–', 'Cancelled'], unknown: ['?', 'Unknown whether it ran'],
};

/** Return the progress of a call from 0 to 1, or null if the app reports no total. */
export function share(call) {
  const { value, total } = call.progress ?? {};
  return Number.isFinite(value) && total > 0 ? Math.min(1, Math.max(0, value / total)) : null;
}

function answer(call) {
  const box = h('div', { class: 'answer' });
  const node = h('details', {}, h('summary', {}, 'Answer as data'), box);
  node.addEventListener('toggle', async () => {
    try {
      const { result } = await callWithResult(call.id);
      const { tree } = await import('./content.js');
      box.append(h('div', { class: 'tree' }, tree(result)));
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

function problem({ code, message }) {
  return h('p', { class: 'problem' }, h('code', {}, code), ` ${message}`);
}

function outcome(call) {
  return [
    call.status === 'failed' && call.error && problem(call.error),
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
    const percent = done === null ? '' : `${Math.round(done * 100)} %`;
    text.textContent = [percent, call.progress?.text].filter(Boolean).join(' ');

    const asked = JSON.stringify(call.question);
    if (asked === shownQuestion) return;
    shownQuestion = asked;
    questionBox.replaceChildren();
    if (!call.question) return;
    const { question } = await import('./question.js');
    if (asked === shownQuestion) questionBox.replaceChildren(question(call));
  }
  return { node, update };
}

const panels = new Map();
on('calls_changed', (call) => {
  for (const [id, updates] of panels) {
    if (!call || call.id === id) updates.forEach((update) => update());
  }
});

/** The panel of the call with this id. */
export function panel(id) {
  const state = h('p', { class: 'state', role: 'status' });
  const live = progressOf(id);
  const node = h('div', { class: 'panel stack' }, state, live.node);

  function update() {
    const call = calls.get(id);
    if (!call) return;
    const parts = [...STATES[call.status]];
    if (!running(call)) parts.push(`after ${duration(call.duration_ms)}`);
    if (call.artifacts.length) parts.push(`with ${plural(call.artifacts.length, 'file')}`);
    const summary = parts.join(' ');
    if (state.textContent !== summary) state.textContent = summary; // a live region should not repeat its text
    node.dataset.status = call.status;
    if (running(call)) {
      live.update(call);
    } else {
      node.replaceChildren(state, ...outcome(call));
      panels.get(id)?.delete(update);
    }
  }

  panels.set(id, (panels.get(id) ?? new Set()).add(update));
  update();
  return node;
}
