// The list of calls that programs make.

import { $ } from './dom.js';

const SHOWN = 12;
const MARKS = { running: '…', succeeded: '✓', failed: '✕', cancelled: '⊘', raw: '?' };

export function startLog(record) {
  let due = false;
  const draw = () => {
    due = false;
    const calls = record.calls.slice(-SHOWN).reverse();
    const items = calls.map(({ capability, state, duration }) => {
      const element = document.createElement('li');
      element.className = state;
      element.textContent = `${MARKS[state]} ${capability}`;
      const about = document.createElement('span');
      about.textContent = duration === undefined ? state : `${state}, ${duration} ms`;
      element.append(about);
      return element;
    });
    $('log').replaceChildren(...items);
    $('log-hint').hidden = calls.length > 0;
    $('status').textContent = record.agent ? `Connected: ${record.agent.name}` : 'Ready';
    $('status').classList.toggle('connected', Boolean(record.agent));
  };
  record.listeners.add(() => {
    if (!due) requestAnimationFrame(draw); // many calls, one redraw
    due = true;
  });
}
