// One capability of a connected app: its form, and the calls made with it.
import { address, get, post } from './api.js';
import { begun } from './calls.js';
import { tree } from './content.js';
import { busy, button, h, say } from './dom.js';
import { formFor, jsonEditor } from './form.js';
import { panel } from './panel.js';

const TIMEOUT = 60; // seconds

function badges(capability) {
  const notes = [
    capability.experimental && ['experimental', 'It may change.'],
    capability.deprecated && ['deprecated', capability.deprecationMessage ?? ''],
    capability.available === false && ['unavailable', 'The app says that it cannot run now.'],
  ].filter(Boolean);
  return notes.map(([word, text]) => h('p', { class: 'note' }, h('strong', {}, word), ` ${text}`));
}

/** The box for one capability of one app; focus goes to its heading. */
export async function openCapability(app, name, place) {
  place.replaceChildren(h('p', { class: 'muted' }, 'Loading …'));
  let capability;
  try {
    capability = await get(address(['apps', app.session, 'capabilities', name]));
  } catch (error) {
    place.replaceChildren(h('p', { class: 'problem' }, error.message));
    return;
  }
  const schema = capability.inputSchema ?? {};
  const made = formFor(schema);
  const raw = jsonEditor({ description: 'The parameters as one JSON object; chosen files are put in beside them.' }, { label: 'Parameters' });
  const timeout = h('input', { type: 'number', min: 1, max: 3600, value: TIMEOUT, id: 'run-timeout' });
  const run = h('button', { class: 'primary' }, 'Run');
  const calls = h('div', { class: 'stack runs' });
  raw.node.hidden = true;

  const swap = button('Edit as JSON', () => {
    const toJson = raw.node.hidden;
    const editor = raw.node.querySelector('textarea');
    if (toJson) editor.value = JSON.stringify(made.read().params, null, 2);
    editor.setCustomValidity('');
    raw.node.hidden = !toJson;
    made.node.hidden = toJson;
    swap.textContent = toJson ? 'Back to the form' : 'Edit as JSON';
  }, { class: 'quiet small' });

  const form = h('form', { class: 'stack', 'aria-label': `Parameters of ${name}` },
    made.node, raw.node,
    h('div', { class: 'row' }, run, swap, h('div', { class: 'grow' }), h('label', { class: 'inline', for: 'run-timeout' }, 'Timeout', timeout, 's')));
  form.addEventListener('keydown', (event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && form.requestSubmit());
  form.noValidate = true; // a hidden form cannot be checked by the browser, so it is asked below
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const visible = [...form.elements].filter((control) => control.checkVisibility());
    const wrong = visible.find((control) => !control.checkValidity());
    if (wrong) {
      wrong.reportValidity();
      return;
    }
    busy(run, async () => {
      const { params, files } = made.read();
      const given = raw.node.hidden ? params : (raw.read() ?? {});
      const call = await post(address(['apps', app.session, 'calls']), { capability: name, params: given, files, timeout: Number(timeout.value) });
      begun(call);
      say(`${name} runs`);
      calls.prepend(panel(call.id));
      calls.firstChild.scrollIntoView({ block: 'nearest' });
    });
  });

  const schemas = [['Input schema', capability.inputSchema], ['Output schema', capability.outputSchema]].filter(([, value]) => value);
  const heading = h('h2', { id: 'capability-title', tabindex: -1 }, name);
  place.replaceChildren(
    heading, h('p', {}, capability.description ?? ''), ...badges(capability), form, calls,
    ...schemas.map(([title, value]) => h('details', { class: 'schema' }, h('summary', {}, title), h('div', { class: 'tree' }, tree(value)))));
  heading.focus({ preventScroll: true });
  if (matchMedia('(max-width: 860px)').matches) heading.scrollIntoView();
}
