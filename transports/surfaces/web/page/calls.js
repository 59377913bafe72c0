// The calls that the page knows, by id: loaded once, then kept by events.
import { address, get } from './api.js';
import { emit, on } from './events.js';

const LIMIT = 200; // calls that are asked for, and twice as many that are kept
/** Oldest first. */
export const calls = new Map();
const told = new Set(); // ids that events were about since the list was asked for last

export const running = (call) => call.duration_ms === null;

/** Loads the latest calls; `calls_changed` without an id. */
export async function loadCalls() {
  told.clear();
  const answer = await get(address(['calls'], { limit: LIMIT }));
  const newer = [...calls.values()].filter((call) => told.has(call.id)); // events that overtook the list
  calls.clear();
  for (const call of [...answer.calls.reverse(), ...newer]) calls.set(call.id, call);
  emit('calls_changed');
}

/** A call with its result, which events and lists leave out. */
export const whole = (id) => get(address(['calls', id]));

/** Take in a call that was started here, unless events that overtook the answer say more of it already. */
export const begun = (call) => calls.has(call.id) || learn(call);

function learn(call) {
  told.add(call.id);
  calls.set(call.id, call);
  if (calls.size > 2 * LIMIT) calls.delete(calls.keys().next().value);
  emit('calls_changed', call);
}

for (const name of ['call_started', 'call_progress', 'call_asked', 'call_finished']) on(name, learn);
