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

let source = null;
let timer = 0;

/** Open the stream. `reset` is emitted when everything has to be loaded: now, and whenever events may have been missed. */
export function follow() {
  let fresh = true; // there is no place in the stream yet to come back to
  let wait = 1000;
  const open = () => {
    source = new EventSource('/events');
    source.onopen = () => {
      emit('connection', 'live');
      wait = 1000;
      if (fresh) emit('reset');
    };
    source.onerror = () => {
      emit('connection', 'lost');
      // The browser comes back by itself with Last-Event-ID, unless the server refused: then the stream is closed for good
      // and its place in it is lost.
      if (source.readyState !== EventSource.CLOSED) return;
      fresh = true;
      emit('refused');
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, 30_000);
    };
    for (const name of NAMES) {
      source.addEventListener(name, (event) => {
        fresh = false;
        emit(name, JSON.parse(event.data));
      });
    }
  };
  unfollow();
  open();
}

export function unfollow() {
  clearTimeout(timer);
  source?.close();
}
