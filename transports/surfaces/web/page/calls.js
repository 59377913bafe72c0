// Calls by id: loaded once, then updated by events.
import { address, get } from './api.js';
import { emit, on } from './events.js';

const LIMIT = 200; // loaded calls; twice as many are kept
/** Oldest first. */
export const calls = new Map();
const updated = new Set(); // ids of calls with an event since the last request for the list

let markLoaded;
/** Resolved once the latest calls have been loaded. */
export const loaded = new Promise((resolve) => { markLoaded = resolve; });

export const running = (call) => call.status === 'working' || call.status === 'input_required';

/** Load the latest calls. Emits `calls_changed` without a call. */
export async function loadCalls() {
  updated.clear();
  const answer = await get(address(['calls'], { limit: LIMIT }));
  const newer = [...calls.values()].filter((call) => updated.has(call.id)); // events that overtook the list
  calls.clear();
  for (const call of [...answer.calls.reverse(), ...newer]) calls.set(call.id, call);
  emit('calls_changed');
  markLoaded();
}

/** Load a call with its result, which events and lists omit. */
export const callWithResult = (id) => get(address(['calls', id]));

/** Add a call that was started here, unless events that overtook the answer have added it. */
export const addStarted = (call) => calls.has(call.id) || update(call);

function update(call) {
  updated.add(call.id);
  calls.set(call.id, call);
  if (calls.size > 2 * LIMIT) calls.delete(calls.keys().next().value);
  emit('calls_changed', call);
}

for (const event of ['call_started', 'call_progress', 'call_asked', 'call_finished']) on(event, update);
