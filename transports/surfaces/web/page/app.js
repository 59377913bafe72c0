// Main module of the page: sign-in, routing between views, state of the connection.
import { get, post } from './api.js';
import { byId, busy } from './dom.js';
import { follow, on, unfollow } from './events.js';
import { startGrid } from './grid.js';
import { openCall, startTimeline } from './timeline.js';

const VIEWS = ['artifacts', 'calls', 'apps', 'resources', 'runs'];
const TITLES = {
  login: 'Sign in', artifacts: 'Artifacts', calls: 'Calls', apps: 'Apps', resources: 'Resources', runs: 'Runs',
};
let signedIn = false;
let current = 'artifacts'; // the view behind an open artifact

/** Return the view in the address and, for `#artifact=ID`, `#call=ID` and `#run=ID`, the id of the open item. */
function parseHash() {
  const [name, encoded = ''] = location.hash.slice(1).split('=');
  const id = decode(encoded);
  if (name === 'artifact') return { view: current, artifact: id };
  if (name === 'call') return { view: 'calls', call: id };
  if (name === 'run') return { view: 'runs', run: id };
  return { view: VIEWS.includes(name) ? name : 'artifacts' };
}

/** Return a decoded part of the address. A link that was cut within a character is left as it is: nothing has that id. */
function decode(encoded) {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded;
  }
}

// Modules that few visits need are loaded on demand: forms of apps, the dialog with its previews.
async function show() {
  const { view, artifact, call, run } = signedIn ? parseHash() : { view: 'login' };
  if (signedIn) current = view;
  for (const name of ['login', ...VIEWS]) byId(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === `#${view}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  for (const node of document.querySelectorAll('[data-signed-in]')) node.hidden = !signedIn;
  document.title = `${TITLES[view]} · ABP gallery`;

  if (view === 'apps') (await import('./apps.js')).startApps(byId('view-apps'));
  if (view === 'resources') (await import('./resources.js')).startResources(byId('view-resources'));
  if (view === 'runs') (await import('./runs.js')).showRun(byId('view-runs'), run);

  if (artifact) (await import('./details.js')).openDetails(artifact);
  else if (document.querySelector('dialog.details[open]')) (await import('./details.js')).closeDetails();
  if (call) openCall(call);
}

async function enter() {
  signedIn = true;
  show();
  follow();
  try {
    const { served } = await get('/runs');
    byId('runs-link').hidden = !served;
    if (served && !location.hash) location.replace('#runs');
  } catch {
    // Without an answer there is no link to the runs.
  }
}

function leave() {
  if (signedIn) unfollow();
  signedIn = false;
  show();
  byId('token').focus();
}

async function signIn(token) {
  await post('/login', { token });
  byId('token').value = '';
  byId('login-problem').textContent = '';
  enter();
}

function showProblem(error) {
  const problem = error.status === 401 ? 'That token is not the one of this server.' : error.message;
  byId('login-problem').textContent = problem;
}

byId('login').addEventListener('submit', (event) => {
  event.preventDefault();
  busy(event.submitter, async () => {
    try {
      await signIn(byId('token').value.trim());
    } catch (error) {
      showProblem(error);
      byId('token').select();
    }
  });
});
byId('sign-out').addEventListener('click', () => busy(byId('sign-out'), async () => {
  await post('/logout');
  leave();
}));

on('signed_out', () => signedIn && leave());
on('refused', () => get('/calls?limit=1').catch(() => null)); // if access was the reason, `signed_out` follows
on('connection', (state) => {
  const text = { live: 'Live', lost: 'Connecting …' }[state];
  const node = byId('connection');
  node.dataset.state = state;
  if (node.textContent !== text) node.textContent = text; // a live region should not repeat its text
});
on('details_closed', () => {
  if (location.hash.startsWith('#artifact=')) history.replaceState(null, '', `#${current}`);
});
addEventListener('hashchange', show);

startGrid(byId('view-artifacts'));
startTimeline(byId('view-calls'));

/** Sign in by the token in the address, otherwise by the cookie. The token is removed from the address at once, so that it is not
 * shown, bookmarked or in the history. */
async function begin() {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (token) {
    history.replaceState(null, '', location.pathname);
    try {
      await signIn(decode(token));
    } catch (error) {
      leave();
      showProblem(error);
    }
    return;
  }
  try {
    await get('/calls?limit=1');
    enter();
  } catch {
    leave();
  }
}
begin();
