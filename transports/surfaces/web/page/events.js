// What happens, from the server's event stream and from within the page: `on` listens, `emit` tells.

const NAMES = [
  'artifact_stored', 'artifact_removed', 'resource_updated', 'app_connected', 'app_disconnected', 'capabilities_changed',
  'call_started', 'call_progress', 'call_asked', 'call_finished', 'reset',
];
const listeners = new Map();

export function on(name, listener) {
  listeners.set(name, [...(listeners.get(name) ?? []), listener]);
}

export function emit(name, data) {
  for (const listener of listeners.get(name) ?? []) listener(data);
}

const LINGER = 20_000; // ms that a tab which nobody sees goes on listening
const FIRST_WAIT = 1000; // ms before a refused stream is asked for again; doubled each time
const LONGEST_WAIT = 30_000;

let source = null;
let wanted = false;
let fresh = true; // there is no place in the stream yet to come back to
let wait = FIRST_WAIT;
let again = 0;
let asleep = 0;

function close() {
  clearTimeout(again);
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
    // The browser comes back by itself with Last-Event-ID, unless the server refused: then the stream is closed for good
    // and its place in it is lost.
    if (source.readyState !== EventSource.CLOSED) return;
    fresh = true;
    emit('refused');
    again = setTimeout(open, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };
  for (const name of NAMES) {
    source.addEventListener(name, (event) => {
      fresh = false;
      emit(name, JSON.parse(event.data));
    });
  }
}

/** A browser has six connections for one server and all tabs together: those that nobody sees keep none. */
function attend() {
  clearTimeout(asleep);
  if (!wanted) return;
  if (document.hidden) asleep = setTimeout(close, LINGER);
  else if (!source) open();
}

document.addEventListener('visibilitychange', attend);

/** Open the stream. `reset` is emitted when everything has to be loaded: now, and whenever events may have been missed. */
export function follow() {
  close();
  wanted = true;
  attend();
}

export function unfollow() {
  wanted = false;
  clearTimeout(asleep);
  close();
}
