// Notes: an app for people, with a form, and for programs, with capabilities.

import manifest from './abp-manifest.json' with { type: 'json' };
import { AppError, publish } from './abp.js';
import { makePdf } from './pdf.js';

const notes = [];
const list = document.querySelector('ul');
const form = document.querySelector('form');
const item = (text) => Object.assign(document.createElement('li'), { textContent: text });
const show = () => list.replaceChildren(...notes.map(item));
const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

form.addEventListener('submit', (event) => {
  event.preventDefault();
  notes.push(form.elements.text.value);
  form.reset();
  show();
});

publish(manifest, {
  'notes.add': ({ text }, { notify }) => {
    notes.push(text);
    show();
    notify('notifications/state/changed', { count: notes.length });
    return { count: notes.length };
  },

  'notes.pdf': ({ title = 'Notes' }) => {
    const content = makePdf([title, '', ...notes]);
    const document = { content, mimeType: 'application/pdf', size: content.byteLength, filename: 'notes.pdf' };
    return { document, notes: notes.length };
  },

  'notes.report': async ({ steps }, { signal, progress }) => {
    for (let step = 1; step <= steps; step += 1) {
      await pause(100);
      signal.throwIfAborted(); // cancelled, or out of time: stop the work
      progress(step, steps, `step ${step} of ${steps}`);
    }
    const content = `# Notes\n\n${notes.length} in ${steps} steps\n${notes.map((note) => `\n- ${note}`).join('')}\n`;
    const size = new TextEncoder().encode(content).byteLength;
    return { report: { content, mimeType: 'text/markdown', encoding: 'utf-8', size, filename: 'report.md' } };
  },

  'notes.clear': async (_, { ask }) => {
    const message = `Delete all ${notes.length} notes?`;
    const answer = await ask('elicitation/confirm', { message, destructive: true });
    if (!answer?.confirmed) throw new AppError('PRECONDITION_FAILED', 'it was not confirmed, so nothing was deleted');
    const deleted = notes.splice(0).length;
    show();
    return { deleted };
  },

  'notes.export': async () => {
    const body = ['note', ...notes].map((line) => `"${line.replaceAll('"', '""')}"\r\n`).join('');
    const response = await fetch('exports', { method: 'POST', headers: { 'Content-Type': 'text/csv' }, body });
    if (!response.ok) throw new AppError('EXPORT_FAILED', `the server refused the file (${response.status})`, true);
    const { path, token, size, expiresAt } = await response.json();
    const auth = { type: 'bearer', header: `Bearer ${token}` };
    const downloadUrl = new URL(path, location.href).href;
    return { file: { downloadUrl, mimeType: 'text/csv', size, filename: 'notes.csv', expiresAt, auth } };
  },
});
