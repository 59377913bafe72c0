// Batch runs: states, throughput, failures, and pages of jobs. Everything is read-only.
import { address, get } from './api.js';
import { button, h, notice } from './dom.js';
import { on } from './events.js';
import { duration, moment, plural, size } from './format.js';

const STATES = {
  queued: ['·', 'Queued'], leased: ['…', 'Running'], succeeded: ['✓', 'Succeeded'],
  failed: ['✗', 'Failed'], unknown: ['?', 'Unknown'], cancelled: ['–', 'Cancelled'],
};
const REFRESH = 1000; // minimum ms between two requests
const RENEW = 20_000; // ms after which a request renews the server's watch of the run
const CODES = 8; // shown error codes
const WAIT = 250; // ms after the last key

let runs = [];
let current = null; // id of the shown run
let rows = new Map(); // job key → its row
let next = null;
let paged = false; // more than the first page is loaded, so that the list is not refreshed
let timer = 0;
let turn = 0; // number of the last request for jobs: only its answer counts
let loading = false; // the last request is for a first page

const picker = h('select', { 'aria-label': 'Run', onchange: () => (location.hash = `#run=${picker.value}`) });
const board = h('div', { class: 'stack' });
const state = h('select', { 'aria-label': 'State', onchange: () => loadJobs() });
const code = h('select', { 'aria-label': 'Error', onchange: () => loadJobs() });
const search = h('input', { type: 'search', placeholder: 'Search jobs', 'aria-label': 'Search jobs' });
const list = h('div', { class: 'jobs', role: 'list', 'aria-label': 'Jobs' });
const more = button('More jobs', () => loadJobs(true));
const told = h('p', { class: 'muted', role: 'status' });
const jobs = h('section', { class: 'stack tight', 'aria-label': 'Jobs' },
  h('form', { class: 'filters', role: 'search', 'aria-label': 'Filter jobs', onsubmit: (event) => event.preventDefault() }, search, state, code),
  list, told, h('div', { class: 'row' }, more));
const empty = h('div', { class: 'empty', hidden: true }, h('h2', {}, 'No runs yet'), h('p', {}, h('code', {}, 'abp batch run JOBS --out RUN'), ' begins one; it appears here.'));

const total = (run) => Object.values(run.states).reduce((sum, count) => sum + count, 0);
const number = (value) => value.toLocaleString();

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Throughput: jobs that ended in each interval, stacked: succeeded jobs below the others. */
function plot({ began, step_seconds: step, succeeded, others }) {
  if (!began) return h('p', { class: 'muted' }, 'No job has ended yet.');
  const sums = succeeded.map((count, at) => count + others[at]);
  const top = Math.max(...sums, 1);
  const width = 100 / sums.length;
  const bar = (at, from, count, kind) => count > 0 && svg('rect', { class: kind, x: at * width + width * 0.08, width: width * 0.84, y: 100 - ((from + count) / top) * 100, height: (count / top) * 100 });
  const bars = sums.flatMap((_, at) => [bar(at, 0, succeeded[at], 'good'), bar(at, succeeded[at], others[at], 'bad')]).filter(Boolean);
  const rate = `${(top / step).toPrecision(2)} a second`;
  const spent = duration(sums.length * step * 1000);
  const label = `Jobs that ended over ${spent}, at most ${rate}; the last part has ${plural(sums.at(-1), 'job')}`;
  return h('figure', { class: 'plot' },
    h('span', { class: 'muted' }, rate),
    svg('svg', { viewBox: '0 0 100 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, ...bars),
    h('figcaption', { class: 'muted' }, h('span', {}, moment(began)), h('span', {}, `each bar: ${duration(step * 1000)}`), h('span', {}, `+ ${spent}`)));
}

/** A bar of all states, and their counts as buttons that filter the jobs. */
function stateBar(run) {
  const all = Math.max(total(run), 1);
  const shown = ['succeeded', 'failed', 'unknown', 'cancelled', 'leased', 'queued'].filter((name) => run.states[name]);
  const label = shown.map((name) => `${number(run.states[name])} ${STATES[name][1].toLowerCase()}`).join(', ');
  let at = 0;
  const parts = shown.map((name) => {
    const part = svg('rect', { class: name, x: at, y: 0, height: 10, width: (run.states[name] / all) * 100 });
    at += (run.states[name] / all) * 100;
    return part;
  });
  return [
    svg('svg', { class: 'state-bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': label || 'no jobs' }, ...parts),
    h('div', { class: 'row' }, shown.map((name) => button(
      [h('span', { class: `dot ${name}`, 'aria-hidden': true }), `${number(run.states[name])} ${STATES[name][1].toLowerCase()}`],
      () => filter(name, ''), { class: 'small', 'aria-pressed': String(state.value === name) }))),
  ];
}

function progress(run) {
  const open = run.states.queued + run.states.leased;
  const rate = run.recent_per_second;
  const left = open && rate > 0 ? `about ${duration((open / rate) * 1000)} left` : '';
  const speed = open && rate > 0 ? `${rate.toPrecision(2)} a second` : '';
  const how = run.cancelled ? 'cancelled' : open ? (run.states.leased ? 'running' : 'waiting') : 'done';
  return h('p', { class: 'muted' }, [`${number(total(run) - open)} of ${plural(total(run), 'job')} ended`, how, speed, left].filter(Boolean).join(' · '));
}

function reasons(run) {
  const most = Math.max(...run.codes.map((one) => one.jobs), 1);
  const left = run.codes.length - CODES;
  return h('section', { class: 'card-like stack tight', 'aria-labelledby': 'reasons' }, h('h2', { id: 'reasons' }, 'Failures by reason'),
    run.codes.length ? h('ul', { class: 'reasons', role: 'list' }, run.codes.slice(0, CODES).map((one) => h('li', {},
      button(one.name, () => filter('', one.code), { class: 'quiet small', 'aria-label': `${one.name}: ${plural(one.jobs, 'job')}; show them` }),
      svg('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('rect', { class: 'bad', x: 0, y: 1, height: 8, width: Math.max((one.jobs / most) * 100, 1) })),
      h('span', { class: 'took' }, number(one.jobs)))), left > 0 && h('li', { class: 'muted' }, `and ${plural(left, 'more reason')}`))
      : h('p', { class: 'muted' }, 'None.'));
}

/** Figures of the run's report: replaced browsers, and durations of calls. */
function report({ recycled, milliseconds, written }) {
  const why = Object.entries(recycled ?? {});
  const replaced = why.length ? `${plural(why.reduce((sum, [, count]) => sum + count, 0), 'browser')}: ${why.map(([name, count]) => `${name} ${number(count)}`).join(', ')}` : 'none';
  return h('section', { class: 'card-like stack tight', 'aria-labelledby': 'report' }, h('h2', { id: 'report' }, 'Browsers and times'),
    h('dl', { class: 'facts-list' },
      recycled && [h('dt', {}, 'Browsers replaced'), h('dd', {}, replaced)],
      Object.entries(milliseconds).map(([name, ms]) => [h('dt', {}, `${name.replace('p', '')} % of the jobs within`), h('dd', {}, duration(ms))])),
    h('p', { class: 'hint' }, `As of the report of ${moment(written)}`));
}

function draw(run) {
  const focused = document.activeElement?.closest('#run-board') && document.activeElement.textContent;
  board.replaceChildren(
    h('section', { class: 'card-like stack tight', 'aria-label': 'Progress' }, h('h2', {}, run.name), progress(run), stateBar(run)),
    h('div', { class: 'run-cards' },
      h('section', { class: 'card-like stack tight', 'aria-labelledby': 'throughput' }, h('h2', { id: 'throughput' }, 'Throughput'), plot(run.throughput)),
      reasons(run), run.report && report(run.report)));
  if (focused) [...board.querySelectorAll('button')].find((one) => one.textContent === focused)?.focus();
  const chosen = code.value;
  const known = run.codes.some((one) => one.code === chosen) ? [] : [{ code: chosen, name: chosen }];
  code.replaceChildren(h('option', { value: '' }, 'All errors'), ...[...run.codes, ...known].filter((one) => one.code).map((one) => h('option', { value: one.code }, one.name)));
  code.value = chosen;
}

function filter(name, reason) {
  state.value = state.value === name && !reason ? '' : name;
  if (reason && ![...code.options].some((one) => one.value === reason)) code.append(h('option', { value: reason }, reason));
  code.value = reason;
  search.value = '';
  loadJobs();
  refresh();
}

function panel(job) {
  const box = h('div', { class: 'panel stack' }, h('p', { class: 'muted', role: 'status' }, 'Reading …'));
  get(address(['runs', current, 'jobs', job.key])).then((whole) => {
    const facts = [
      ['State', STATES[whole.state][1]], ['Target', whole.target], ['Key', h('code', {}, whole.key)], ['Attempts', number(whole.attempts)], ['Worker', whole.worker],
      ['Started', whole.started && moment(whole.started)], ['Ended', whole.finished && moment(whole.finished)], ['Took', whole.duration_ms > 0 && duration(whole.duration_ms)],
      ['Idempotent', whole.idempotent && 'yes'], ['Copies', whole.copies.join(', ')], ...Object.entries(whole.inputs).map(([place, path]) => [`File ${place}`, path]),
    ];
    const text = (title, content) => content && h('details', {}, h('summary', {}, title), h('pre', { class: 'text sunken scroller', tabindex: 0, role: 'region', 'aria-label': title }, content));
    box.replaceChildren(...[
      whole.error && h('p', { class: 'problem' }, whole.code && h('code', {}, whole.code), ` ${whole.error}`),
      whole.files.length > 0 && h('ul', { class: 'chips', role: 'list', 'aria-label': 'Files of this job' }, whole.files.map((file) => h('li', {}, fileLink(file)))),
      whole.file_count > whole.files.length && h('p', { class: 'muted' }, `and ${plural(whole.file_count - whole.files.length, 'more file')}`),
      h('dl', { class: 'facts-list' }, facts.filter(([, value]) => value).map(([name, value]) => [h('dt', {}, name), h('dd', {}, value)])),
      text('Parameters', whole.params), text('Carried along', whole.carried),
    ].filter(Boolean));
  }, (error) => box.replaceChildren(h('p', { class: 'problem', role: 'alert' }, error.message)));
  return box;
}

function fileLink(file) {
  const label = [h('span', { class: 'name' }, file.filename), h('span', { class: 'facts' }, [file.mime_type, Number.isFinite(file.size_bytes) && size(file.size_bytes)].filter(Boolean).join(' · '))];
  return file.id ? h('a', { class: 'chip plain', href: `#artifact=${encodeURIComponent(file.id)}` }, label) : h('span', { class: 'chip plain' }, label);
}

const MARKS = { leased: 'running', unknown: 'asking' }; // as the calls are coloured

function row(job) {
  const [sign, word] = STATES[job.state];
  const outcome = job.code ?? (job.file_count ? plural(job.file_count, 'file') : word.toLowerCase());
  const node = h('details', { class: 'job', 'data-status': MARKS[job.state] ?? job.state },
    h('summary', {},
      h('span', { class: 'what' }, h('span', { class: 'mark', role: 'img', 'aria-label': word }, sign), h('span', {}, h('strong', {}, job.id ?? job.key.slice(0, 12)), h('span', { class: 'muted' }, job.capability))),
      h('span', { class: 'told' }, `${job.copy ? `shared by ${job.copy} · ` : ''}${outcome} · ${job.error ?? job.target}`),
      h('span', { class: 'took' }, job.duration_ms > 0 ? duration(job.duration_ms) : '')));
  node.addEventListener('toggle', () => node.append(panel(job)), { once: true });
  return h('div', { role: 'listitem' }, node);
}

/** Load the first page of the jobs, or one more. Rows of unchanged jobs stay, including their open parts. */
async function loadJobs(append = false) {
  if (append && loading) return; // the cursor of the next page is not known yet
  const [asked, mine, before] = [current, ++turn, paged];
  loading = !append;
  paged = append;
  const query = { state: state.value, code: code.value, q: search.value.trim(), after: append ? next : '' };
  try {
    const answer = await get(address(['runs', asked, 'jobs'], query));
    if (mine !== turn || asked !== current) return;
    const kept = append ? rows : new Map();
    for (const job of answer.jobs) {
      const same = `${job.state} ${job.attempts} ${job.finished} ${job.copy}`;
      const old = rows.get(job.key);
      kept.set(job.key, old?.same === same ? old : { node: row(job), same });
    }
    rows = kept;
    next = answer.next;
    list.replaceChildren(...[...rows.values()].map((one) => one.node));
    more.hidden = next === null;
    told.textContent = rows.size ? '' : next === null ? 'No such jobs.' : 'None among the latest jobs; look through more.';
  } catch (error) {
    if (mine !== turn) return;
    paged = before;
    if (error.status !== 401) notice(error.message);
  } finally {
    if (mine === turn) loading = false;
  }
}

async function refresh() {
  clearTimeout(timer);
  timer = 0;
  const asked = current;
  try {
    const run = await get(address(['runs', asked]));
    if (asked === current) draw(run);
  } catch (error) {
    if (asked === current && error.status !== 401) board.replaceChildren(h('p', { class: 'problem', role: 'alert' }, error.message));
  }
}

const visible = () => current && !document.hidden && board.checkVisibility();

function changed({ id }) {
  if (id !== current || timer || !visible()) return;
  timer = setTimeout(() => {
    refresh();
    if (!paged) loadJobs();
  }, REFRESH);
}

/** Show a run, by default the newest. */
export async function showRun(section, id) {
  if (!section.hasChildNodes()) {
    state.append(h('option', { value: '' }, 'All that ended'), ...Object.entries(STATES).map(([name, [, word]]) => h('option', { value: name }, word)));
    board.id = 'run-board';
    section.append(h('div', { class: 'title' }, h('h1', { id: 'runs-title' }, 'Runs'), picker), h('div', { class: 'stack' }, board, jobs), empty);
    let typing = 0;
    search.addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(loadJobs, WAIT);
    });
    on('run_changed', changed);
    on('reset', () => visible() && refresh());
    setInterval(() => visible() && refresh(), RENEW);
  }
  try {
    runs = (await get('/runs')).runs;
  } catch (error) {
    if (error.status !== 401) notice(error.message);
    return;
  }
  const wanted = runs.some((one) => one.id === id) ? id : (runs.find((one) => one.id === current) ?? runs[0])?.id ?? null;
  picker.replaceChildren(...runs.map((one) => h('option', { value: one.id }, one.name)));
  picker.hidden = runs.length < 2;
  jobs.hidden = !wanted;
  empty.hidden = Boolean(wanted);
  if (wanted) picker.value = wanted;
  if (wanted !== current) {
    current = wanted;
    rows = new Map();
    filterOff();
    board.replaceChildren();
    list.replaceChildren();
  }
  if (wanted) await Promise.all([refresh(), loadJobs()]);
}

function filterOff() {
  for (const field of [state, code, search]) field.value = '';
}
