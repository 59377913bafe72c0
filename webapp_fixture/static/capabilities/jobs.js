// Work that takes time, questions to the client, and the app's own record: job.run, job.wait, form.ask, app.record.

/** Resolves after so many milliseconds; rejects at once when the call is cancelled. */
export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException('cancelled', 'AbortError'));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, milliseconds);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}

async function runJob({ steps = 5, delay = 50, label = 'job' }, { callId, signal, progress, notify }) {
  notify('notifications/operation/started', { operationId: callId, label, steps });
  let outcome = 'cancelled';
  try {
    for (let step = 1; step <= steps; step += 1) {
      await pause(delay, signal);
      progress({ progress: step, total: steps, status: `step ${step} of ${steps}`, stage: label });
    }
    outcome = 'success';
  } finally {
    notify('notifications/operation/completed', { operationId: callId, label, outcome });
  }
  return { steps, label };
}

const waitForever = (_params, { signal }) => new Promise((_, reject) => {
  signal.addEventListener('abort', () => reject(new DOMException('cancelled', 'AbortError')), { once: true });
});

export const jobs = {
  'job.run': runJob,
  'job.wait': waitForever,
  'form.ask': async ({ method, params, timeout }, { elicit }) => ({ response: await elicit({ method, params, timeout }) }),
};

/** app.record answers this page's record. */
export const recordHandlers = (record) => ({ 'app.record': async () => record.toJSON() });
