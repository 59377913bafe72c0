// Batch runs: states, throughput, failures, and pages of jobs. Everything is read-only.
import { address, get } from './api.js';
import { addOption, button, h, hrefOf, joined, scroller, searchField, showError } from './dom.js';
import { on } from './events.js';
import { duration, moment, plural, size } from './format.js';

const STATES = {
  queued: ['·', 'Queued'], leased: ['…', 'Running'], succeeded: ['✓', 'Succeeded'],
  failed: ['✗', 'Failed'], unknown: ['?', 'Unknown'], cancelled: ['–', 'Cancelled'],
};
const SHOWN_STATES = ['succeeded', 'failed', 'unknown', 'cancelled', 'leased', 'queued']; // from left to right
const REFRESH = 1000; // minimum ms between two requests
const RENEW = 20_000; // ms after which a request renews the server's watch of the run
const CODES = 8; // shown error codes

let runs = [];
let current = null; // id of the shown run
let rows = new Map(); // job key → its row
let next = null;
let paged = false; // more than the first page is loaded, so that the list is not refreshed
let timer = 0;
let latestLoad = 0; // number of the last request for jobs: only its answer counts
let loading = false; // the last request is for a first page

const picker = h('select', { 'aria-label': 'Run', onchange: () => (location.hash = `#run=${picker.value}`) });
const board = h('div', { class: 'stack', id: 'run-board' });
const state = h('select', { 'aria-label': 'State', onchange: () => loadJobs() });
const code = h('select', { 'aria-label': 'Error', onchange: () => loadJobs() });
const search = searchField('Search jobs', () => loadJobs(), { delayed: true });
const list = h('div', { class: 'jobs', role: 'list', 'aria-label': 'Jobs' });
const more = button('More jobs', () => loadJobs(true));
const summary = h('p', { class: 'muted', role: 'status' });
const filterForm = h('form', {
  class: 'filters',
  role: 'search',
  'aria-label': 'Filter jobs',
  onsubmit: (event) => event.preventDefault(),
}, search, state, code);
const jobs = h('section', { class: 'stack tight', 'aria-label': 'Jobs' },
  filterForm, list, summary, h('div', { class: 'row' }, more));
const empty = h('div', { class: 'empty', hidden: true },
  h('h2', {}, 'No runs yet'),
  h('p', {}, h('code', {}, 'abp batch run JOBS --out RUN'), ' begins one; it appears here.'));

const total = (run) => Object.values(run.states).reduce((sum, count) => sum + count, 0);
const number = (value) => value.toLocaleString();
const stateCount = (run, name) => `${number(run.states[name])} ${STATES[name][1].toLowerCase()}`;

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function card(id, title, ...content) {
  return h('section', { class: 'card-like stack tight', 'aria-labelledby': id }, h('h2', { id }, title), content);
}

// --- the board of a run -------------------------------------------------------------------------------------------------

/** Throughput: jobs that ended in each interval, stacked: succeeded jobs below the others. */
function plot({ began, step_seconds: step, succeeded, others }) {
  if (!began) return h('p', { class: 'muted' }, 'No job has ended yet.');
  const sums = succeeded.map((count, index) => count + others[index]);
  const top = Math.max(...sums, 1);
  const width = 100 / sums.length;
  const bar = (kind, index, below, count) => svg('rect', {
    class: kind,
    x: index * width + width * 0.08,
    width: width * 0.84,
    y: 100 - ((below + count) / top) * 100,
    height: (count / top) * 100,
  });
  const bars = [];
  for (const index of sums.keys()) {
    if (succeeded[index] > 0) bars.push(bar('good', index, 0, succeeded[index]));
    if (others[index] > 0) bars.push(bar('bad', index, succeeded[index], others[index]));
  }

  const rate = `${(top / step).toPrecision(2)} a second`;
  const elapsed = duration(sums.length * step * 1000);
  const label = `Jobs that ended over ${elapsed}, at most ${rate}; the last part has ${plural(sums.at(-1), 'job')}`;
  return h('figure', { class: 'plot' },
    h('span', { class: 'muted' }, rate),
    svg('svg', { viewBox: '0 0 100 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, ...bars),
    h('figcaption', { class: 'muted' },
      h('span', {}, moment(began)),
      h('span', {}, `each bar: ${duration(step * 1000)}`),
      h('span', {}, `+ ${elapsed}`)));
}

/** A bar of all states, and their counts as buttons that filter the jobs. */
function stateBar(run) {
  const all = Math.max(total(run), 1);
  const shown = SHOWN_STATES.filter((name) => run.states[name]);
  const parts = [];
  let left = 0;
  for (const name of shown) {
    const width = (run.states[name] / all) * 100;
    parts.push(svg('rect', { class: name, x: left, y: 0, height: 10, width }));
    left += width;
  }
  const filterButton = (name) => button(
    [h('span', { class: `dot ${name}`, 'aria-hidden': true }), stateCount(run, name)],
    () => filter(name, ''),
    { class: 'small', 'aria-pressed': String(state.value === name) });
  return [
    svg('svg', {
      class: 'state-bar',
      viewBox: '0 0 100 10',
      preserveAspectRatio: 'none',
      role: 'img',
      'aria-label': shown.map((name) => stateCount(run, name)).join(', ') || 'no jobs',
    }, ...parts),
    h('div', { class: 'row' }, shown.map(filterButton)),
  ];
}

function phaseOf(run) {
  if (run.cancelled) return 'cancelled';
  if (run.states.leased) return 'running';
  return run.states.queued ? 'waiting' : 'done';
}

function progress(run) {
  const open = run.states.queued + run.states.leased;
  const rate = run.recent_per_second;
  const facts = [`${number(total(run) - open)} of ${plural(total(run), 'job')} ended`, phaseOf(run)];
  if (open && rate > 0) facts.push(`${rate.toPrecision(2)} a second`, `about ${duration((open / rate) * 1000)} left`);
  return h('p', { class: 'muted' }, joined(...facts));
}

function reasons(run) {
  if (!run.codes.length) return card('reasons', 'Failures by reason', h('p', { class: 'muted' }, 'None.'));
  const most = Math.max(...run.codes.map((reason) => reason.jobs), 1);
  const left = run.codes.length - CODES;
  const row = (reason) => h('li', {},
    button(reason.name, () => filter('', reason.code), {
      class: 'quiet small',
      'aria-label': `${reason.name}: ${plural(reason.jobs, 'job')}; show them`,
    }),
    svg('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      svg('rect', { class: 'bad', x: 0, y: 1, height: 8, width: Math.max((reason.jobs / most) * 100, 1) })),
    h('span', { class: 'took' }, number(reason.jobs)));
  return card('reasons', 'Failures by reason', h('ul', { class: 'reasons', role: 'list' },
    run.codes.slice(0, CODES).map(row),
    left > 0 && h('li', { class: 'muted' }, `and ${plural(left, 'more reason')}`)));
}

function replacedBrowsers(recycled) {
  const counts = Object.entries(recycled);
  if (!counts.length) return 'none';
  const sum = counts.reduce((before, [, count]) => before + count, 0);
  return `${plural(sum, 'browser')}: ${counts.map(([reason, count]) => `${reason} ${number(count)}`).join(', ')}`;
}

/** Figures of the run's report: replaced browsers, and durations of calls. */
function report({ recycled, milliseconds, written }) {
  const within = (percentile) => `${percentile.replace('p', '')} % of the jobs within`;
  return card('report', 'Browsers and times',
    h('dl', { class: 'facts-list' },
      recycled && [h('dt', {}, 'Browsers replaced'), h('dd', {}, replacedBrowsers(recycled))],
      Object.entries(milliseconds).map(([name, ms]) => [h('dt', {}, within(name)), h('dd', {}, duration(ms))])),
    h('p', { class: 'hint' }, `As of the report of ${moment(written)}`));
}

function draw(run) {
  const focused = document.activeElement?.closest('#run-board') && document.activeElement.textContent;
  board.replaceChildren(
    h('section', { class: 'card-like stack tight', 'aria-label': 'Progress' },
      h('h2', {}, run.name),
      progress(run),
      stateBar(run)),
    h('div', { class: 'run-cards' },
      card('throughput', 'Throughput', plot(run.throughput)),
      reasons(run),
      run.report && report(run.report)));
  if (focused) [...board.querySelectorAll('button')].find((node) => node.textContent === focused)?.focus();

  const chosen = code.value;
  code.replaceChildren(h('option', { value: '' }, 'All errors'));
  for (const reason of run.codes) addOption(code, reason.code, reason.name);
  addOption(code, chosen);
  code.value = chosen;
}

async function refresh() {
  clearTimeout(timer);
  timer = 0;
  const id = current;
  try {
    const run = await get(address(['runs', id]));
    if (id === current) draw(run);
  } catch (error) {
    if (id !== current || error.status === 401) return;
    board.replaceChildren(h('p', { class: 'problem', role: 'alert' }, error.message));
  }
}

// --- jobs ---------------------------------------------------------------------------------------------------------------

function filter(name, reason) {
  state.value = state.value === name && !reason ? '' : name;
  addOption(code, reason);
  code.value = reason;
  search.value = '';
  loadJobs();
  refresh();
}

function fileLink(file) {
  const facts = joined(file.mime_type, Number.isFinite(file.size_bytes) && size(file.size_bytes));
  const label = [h('span', { class: 'name' }, file.filename), h('span', { class: 'facts' }, facts)];
  if (!file.id) return h('span', { class: 'chip plain' }, label);
  return h('a', { class: 'chip plain', href: hrefOf(file.id) }, label);
}

function factsOf(job) {
  const facts = [
    ['State', STATES[job.state][1]],
    ['Target', job.target],
    ['Key', h('code', {}, job.key)],
    ['Attempts', number(job.attempts)],
    ['Worker', job.worker],
    ['Started', job.started && moment(job.started)],
    ['Ended', job.finished && moment(job.finished)],
    ['Took', job.duration_ms > 0 && duration(job.duration_ms)],
    ['Idempotent', job.idempotent && 'yes'],
    ['Copies', job.copies.join(', ')],
    ...Object.entries(job.inputs).map(([place, path]) => [`File ${place}`, path]),
  ];
  const present = facts.filter(([, value]) => value);
  return h('dl', { class: 'facts-list' }, present.map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
}

function folded(title, content) {
  if (!content) return null;
  return h('details', {}, h('summary', {}, title), scroller(title, content, { tag: 'pre', kind: 'text sunken' }));
}

function panel(key) {
  const box = h('div', { class: 'panel stack' }, h('p', { class: 'muted', role: 'status' }, 'Reading …'));
  const show = (job) => {
    const left = job.file_count - job.files.length;
    const parts = [
      job.error && h('p', { class: 'problem' }, job.code && h('code', {}, job.code), ` ${job.error}`),
      job.files.length > 0 && h('ul', { class: 'chips', role: 'list', 'aria-label': 'Files of this job' },
        job.files.map((file) => h('li', {}, fileLink(file)))),
      left > 0 && h('p', { class: 'muted' }, `and ${plural(left, 'more file')}`),
      factsOf(job),
      folded('Parameters', job.params),
      folded('Carried along', job.carried),
    ];
    box.replaceChildren(...parts.filter(Boolean));
  };
  const fail = (error) => box.replaceChildren(h('p', { class: 'problem', role: 'alert' }, error.message));
  get(address(['runs', current, 'jobs', key])).then(show, fail);
  return box;
}

const STATUSES = { leased: 'running', unknown: 'asking' }; // states with the colour of a call's status

function row(job) {
  const [sign, word] = STATES[job.state];
  const name = h('span', {},
    h('strong', {}, job.id ?? job.key.slice(0, 12)),
    h('span', { class: 'muted' }, job.capability));
  const files = job.file_count ? plural(job.file_count, 'file') : word.toLowerCase();
  const facts = joined(job.copy && `shared by ${job.copy}`, job.code ?? files, job.error ?? job.target);
  const node = h('details', { class: 'job', 'data-status': STATUSES[job.state] ?? job.state },
    h('summary', {},
      h('span', { class: 'what' }, h('span', { class: 'mark', role: 'img', 'aria-label': word }, sign), name),
      h('span', { class: 'outcome' }, facts),
      h('span', { class: 'took' }, job.duration_ms > 0 ? duration(job.duration_ms) : '')));
  node.addEventListener('toggle', () => node.append(panel(job.key)), { once: true });
  return h('div', { role: 'listitem' }, node);
}

function summaryOfJobs() {
  if (rows.size) return '';
  return next === null ? 'No such jobs.' : 'None among the latest jobs; look through more.';
}

/** Load the first page of the jobs, or one more. Rows of unchanged jobs stay, including their open parts. */
async function loadJobs(append = false) {
  if (append && loading) return; // the cursor of the next page is not known yet
  const id = current;
  const thisLoad = ++latestLoad;
  const pagedBefore = paged;
  loading = !append;
  paged = append;
  const query = { state: state.value, code: code.value, q: search.value.trim(), after: append ? next : '' };
  try {
    const answer = await get(address(['runs', id, 'jobs'], query));
    if (thisLoad !== latestLoad || id !== current) return;
    const loaded = append ? rows : new Map();
    for (const job of answer.jobs) {
      const version = `${job.state} ${job.attempts} ${job.finished} ${job.copy}`;
      const old = rows.get(job.key);
      loaded.set(job.key, old?.version === version ? old : { node: row(job), version });
    }
    rows = loaded;
    next = answer.next;
    list.replaceChildren(...[...rows.values()].map(({ node }) => node));
    more.hidden = next === null;
    summary.textContent = summaryOfJobs();
  } catch (error) {
    if (thisLoad !== latestLoad) return;
    paged = pagedBefore;
    showError(error);
  } finally {
    if (thisLoad === latestLoad) loading = false;
  }
}

// --- the section --------------------------------------------------------------------------------------------------------

const visible = () => current && !document.hidden && board.checkVisibility();

function changed({ id }) {
  if (id !== current || timer || !visible()) return;
  timer = setTimeout(() => {
    refresh();
    if (!paged) loadJobs();
  }, REFRESH);
}

function build(section) {
  const states = Object.entries(STATES).map(([name, [, word]]) => h('option', { value: name }, word));
  state.append(h('option', { value: '' }, 'All that ended'), ...states);
  section.append(
    h('div', { class: 'title' }, h('h1', { id: 'runs-title' }, 'Runs'), picker),
    h('div', { class: 'stack' }, board, jobs),
    empty);
  on('run_changed', changed);
  on('reset', () => visible() && refresh());
  setInterval(() => visible() && refresh(), RENEW);
}

function clear() {
  rows = new Map();
  for (const field of [state, code, search]) field.value = '';
  board.replaceChildren();
  list.replaceChildren();
}

/** Show a run, by default the newest. */
export async function showRun(section, id) {
  if (!section.hasChildNodes()) build(section);
  try {
    ({ runs } = await get('/runs'));
  } catch (error) {
    showError(error);
    return;
  }
  const named = (name) => runs.find((run) => run.id === name);
  const chosen = (named(id) ?? named(current) ?? runs[0])?.id ?? null;
  picker.replaceChildren(...runs.map((run) => h('option', { value: run.id }, run.name)));
  picker.hidden = runs.length < 2;
  jobs.hidden = !chosen;
  empty.hidden = Boolean(chosen);
  if (chosen !== current) {
    current = chosen;
    clear();
  }
  if (!chosen) return;
  picker.value = chosen;
  await Promise.all([refresh(), loadJobs()]);
}
