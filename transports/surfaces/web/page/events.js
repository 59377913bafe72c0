// Events of the server's stream and of the page itself: `on` adds a listener, `emit` calls the listeners.

const NAMES = [
  'artifact_stored', 'artifact_updated', 'artifact_removed', 'resource_updated', 'resources_changed',
  'app_connected', 'app_disconnected', 'capabilities_changed',
  'call_started', 'call_progress', 'call_asked', 'call_finished', 'run_changed', 'reset',
];
const listeners = new Map();

export function on(name, listener) {
  listeners.set(name, [...(listeners.get(name) ?? []), listener]);
}

export function emit(name, data) {
  for (const listener of listeners.get(name) ?? []) listener(data);
}

const HIDDEN_TIMEOUT = 20_000; // ms after which a hidden tab closes its stream
const FIRST_WAIT = 1000; // ms before a refused stream is opened again; doubled each time
const LONGEST_WAIT = 30_000;

let source = null;
let following = false;
let fresh = true; // no event yet, so no position in the stream to resume from
let wait = FIRST_WAIT;
let retryTimer = 0;
let hiddenTimer = 0;

function close() {
  clearTimeout(retryTimer);
  source?.close();
  source = null;
  fresh = true;
}

function open() {
  source = new EventSource('/events');
  source.onopen = () => {
    emit('connection', 'live');
    wait = FIRST_WAIT;
    if (fresh) emit('reset');
  };
  source.onerror = () => {
    emit('connection', 'lost');
    // The browser reconnects by itself with Last-Event-ID, unless the server refused: then the stream stays closed, and the
    // position is lost.
    if (source.readyState !== EventSource.CLOSED) return;
    fresh = true;
    emit('refused');
    retryTimer = setTimeout(open, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };
  for (const name of NAMES) {
    source.addEventListener(name, (event) => {
      fresh = false;
      emit(name, JSON.parse(event.data));
    });
  }
}

/** Open the stream in a visible tab and close it in a hidden one: a browser has six connections to a server for all tabs. */
function openWhileVisible() {
  clearTimeout(hiddenTimer);
  if (!following) return;
  if (document.hidden) hiddenTimer = setTimeout(close, HIDDEN_TIMEOUT);
  else if (!source) open();
}

document.addEventListener('visibilitychange', openWhileVisible);

/** Open the stream. `reset` is emitted when everything has to be loaded: now, and after events may have been missed. */
export function follow() {
  close();
  following = true;
  openWhileVisible();
}

export function unfollow() {
  following = false;
  clearTimeout(hiddenTimer);
  close();
}
