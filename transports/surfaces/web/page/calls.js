// The calls that the page knows, by id: loaded once, then kept by events.
import { address, get } from './api.js';
import { emit, on } from './events.js';

const LIMIT = 200; // calls that are asked for, and twice as many that are kept
/** Oldest first. */
export const calls = new Map();

export const running = (call) => call.duration_ms === null;

/** Loads the latest calls; `calls_changed` without an id. */
export async function loadCalls() {
  const answer = await get(address(['calls'], { limit: LIMIT }));
  calls.clear();
  for (const call of answer.calls.reverse()) calls.set(call.id, call);
  emit('calls_changed');
}

/** A call with its result, which events and lists leave out. */
export const whole = (id) => get(address(['calls', id]));

/** Take in what is known of a call. Events may overtake the answer that started it: what has ended stays ended. */
export function learn(call) {
  const known = calls.get(call.id);
  if (known && !running(known) && running(call)) return;
  calls.set(call.id, call);
  if (calls.size > 2 * LIMIT) calls.delete(calls.keys().next().value);
  emit('calls_changed', call);
}

for (const name of ['call_started', 'call_progress', 'call_asked', 'call_finished']) on(name, learn);
