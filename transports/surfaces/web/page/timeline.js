// Timeline of calls as bars on a time axis. Calls in close succession form a run with an axis of its own: on a common axis, a pause
// of an hour would leave no room for a call of a second.
import { calls, loadCalls, loaded, running } from './calls.js';
import { byId, h, joined, notice, say, showError } from './dom.js';
import { on } from './events.js';
import { duration, moment, plural } from './format.js';
import { panel, share, STATES } from './panel.js';

const PAUSE = 30_000; // ms without a call, after which a new run begins
const TICKS = 5;
const TICK = matchMedia('(prefers-reduced-motion: reduce)').matches ? 2000 : 250; // ms between two updates of running calls

const rows = new Map();
const list = h('div', { class: 'runs-list' });
const emptyState = h('div', { class: 'empty' },
  h('h2', {}, 'No calls yet'),
  h('p', {},
    'Every call of a connected app appears here while it runs. ', h('a', { href: '#apps' }, 'Run a capability'), '.'));

const start = (call) => Date.parse(call.started);
const end = (call) => (running(call) ? Math.max(Date.now(), start(call)) : start(call) + call.duration_ms);

/** Return the runs, latest first; each is a list of calls by start. */
function runsOf(all) {
  const runs = [];
  let until = -Infinity;
  for (const call of all.sort((a, b) => start(a) - start(b))) {
    if (start(call) - until > PAUSE) runs.push([]);
    runs.at(-1).push(call);
    until = Math.max(until, end(call));
  }
  return runs.reverse();
}

/** Return a step of 1, 2 or 5 times a power of ten that divides a span into about TICKS parts. */
function stepOf(span) {
  const rough = span / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
}

function row(call) {
  const facts = joined(call.app ?? call.session, call.transport, call.detached && 'detached');
  const name = h('span', {}, h('strong', {}, call.capability), h('span', { class: 'muted' }, facts));
  const fill = h('span', { class: 'fill' });
  const parts = {
    mark: h('span', { class: 'mark', role: 'img' }),
    bar: h('span', { class: 'bar' }, fill),
    fill,
    took: h('span', { class: 'took' }),
    outcome: h('span', { class: 'outcome' }),
  };
  const node = h('details', { class: 'call', id: `call-${call.id}` },
    h('summary', {},
      h('span', { class: 'what' }, parts.mark, name),
      h('span', { class: 'track', 'aria-hidden': true }, parts.bar),
      parts.took,
      parts.outcome));
  // Built when first opened; the panel updates itself from then on.
  node.addEventListener('toggle', () => node.append(panel(call.id)), { once: true });
  return { node, parts };
}

function outcomeOf(call) {
  if (call.status === 'failed') return call.error?.code ?? 'failed';
  if (call.status === 'input_required') return 'asks a question';
  if (running(call)) {
    if (call.progress?.text) return call.progress.text;
    return share(call) === null ? 'running' : `${Math.round(share(call) * 100)} %`;
  }
  if (call.artifacts.length) return plural(call.artifacts.length, 'file');
  return STATES[call.status][1].toLowerCase();
}

function draw(call, from, span) {
  const { node, parts } = rows.get(call.id);
  const [sign, word] = STATES[call.status];
  node.dataset.status = call.status;
  parts.mark.textContent = sign;
  parts.mark.ariaLabel = word;
  parts.bar.style.left = `${((start(call) - from) / span) * 100}%`;
  parts.bar.style.width = `${((end(call) - start(call)) / span) * 100}%`;
  parts.fill.style.width = running(call) ? `${(share(call) ?? 0) * 100}%` : '100%';
  parts.took.textContent = duration(end(call) - start(call));
  parts.outcome.textContent = outcomeOf(call);
}

const sections = new Map(); // of runs, by the id of their first call

function sectionOf(run) {
  const key = run[0].id;
  if (!sections.has(key)) {
    const title = h('h2');
    const axis = h('div', { class: 'axis', 'aria-hidden': true });
    const body = h('div', { class: 'calls' });
    sections.set(key, { node: h('section', { class: 'run card-like' }, title, axis, body), title, axis, body });
  }
  return sections.get(key);
}

function summaryOf(run, span) {
  const failed = run.filter((call) => call.status === 'failed').length;
  const files = run.reduce((sum, call) => sum + call.artifacts.length, 0);
  return joined(
    moment(run[0].started),
    plural(run.length, 'call'),
    duration(span),
    files && plural(files, 'file'),
    failed && `${failed} failed`);
}

function ticksOf(span, step) {
  const ticks = [];
  for (let time = 0; time <= span; time += step) {
    const tick = h('span', {}, time === 0 ? '0' : duration(time));
    tick.style.left = `${(time / span) * 100}%`;
    if (time / span > 0.93) tick.className = 'last';
    ticks.push(tick);
  }
  return h('div', { class: 'ticks' }, ticks);
}

function drawRun(run) {
  const parts = sectionOf(run);
  const from = start(run[0]);
  const span = Math.max(...run.map(end), from + 1) - from;
  const step = stepOf(span);
  parts.title.textContent = summaryOf(run, span);
  parts.axis.replaceChildren(ticksOf(span, step));
  parts.node.style.setProperty('--step', `${(step / span) * 100}%`);
  replaceIfDifferent(parts.body, run.map((call) => rows.get(call.id).node));
  for (const call of run) draw(call, from, span);
  return parts.node;
}

/** Leave children that are in their places, since replacing them would end a selection and the focus. */
function replaceIfDifferent(parent, nodes) {
  const same = nodes.length === parent.children.length && nodes.every((node, index) => parent.children[index] === node);
  if (!same) parent.replaceChildren(...nodes);
}

let frame = 0;

/** Draw once with the next frame, for any number of events before it. */
function renderSoon() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    render();
  });
}

function render() {
  const all = [...calls.values()];
  for (const id of rows.keys()) {
    if (!calls.has(id)) rows.delete(id);
  }
  for (const call of all) {
    if (!rows.has(call.id)) rows.set(call.id, row(call));
  }
  const runs = runsOf(all);
  for (const key of sections.keys()) {
    if (!runs.some(([first]) => first.id === key)) sections.delete(key);
  }

  const focused = document.activeElement;
  replaceIfDifferent(list, runs.map(drawRun));
  if (focused !== document.activeElement && list.contains(focused)) focused.focus();
  emptyState.hidden = all.length > 0;

  const active = all.filter(running).length;
  const count = byId('running');
  count.hidden = active === 0;
  count.textContent = active;
  count.ariaLabel = `${active} running`;
}

/** Draw running calls as time passes, while they are visible. */
function tick() {
  if (!list.checkVisibility() || document.hidden) return;
  if ([...calls.values()].some(running)) render();
}

/** Unfold one call and scroll to it. A link to a call can be opened before the calls have been loaded or drawn. */
export async function openCall(id) {
  await loaded;
  render();
  const node = rows.get(id)?.node;
  if (!node) {
    notice('this call is not among the latest; the gallery still has its files');
    return;
  }
  node.open = true;
  node.scrollIntoView({ block: 'center' });
  node.querySelector('summary').focus({ preventScroll: true });
}

export function startTimeline(place) {
  place.append(h('div', { class: 'title' }, h('h1', { id: 'calls-title' }, 'Calls')), emptyState, list);
  on('calls_changed', renderSoon);
  on('call_finished', (call) => {
    const reason = call.status === 'failed' ? `: ${call.error?.code}` : '';
    say(`${call.capability} ${call.status}${reason}`);
  });
  on('reset', async () => {
    try {
      await loadCalls();
    } catch (error) {
      showError(error);
    }
  });
  setInterval(tick, TICK);
}
