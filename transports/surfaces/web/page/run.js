// One capability of a connected app: its form, and the calls made with the form.
import { address, get, post } from './api.js';
import { addStarted } from './calls.js';
import { tree } from './content.js';
import { busy, button, h, say, showHeading } from './dom.js';
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

/** Show one capability of an app in `place`, and focus its heading. */
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
  const fields = formFor(schema);
  const description = 'The parameters as one JSON object; chosen files are added to it.';
  const raw = jsonEditor({ description }, { label: 'Parameters' });
  const timeout = h('input', { type: 'number', min: 1, max: 3600, value: TIMEOUT, id: 'run-timeout' });
  const run = h('button', { class: 'primary' }, 'Run');
  const calls = h('div', { class: 'stack runs' });
  raw.node.hidden = true;

  const swap = button('Edit as JSON', () => {
    const asJson = raw.node.hidden;
    const editor = raw.node.querySelector('textarea');
    if (asJson) editor.value = JSON.stringify(fields.read().params, null, 2);
    editor.setCustomValidity('');
    raw.node.hidden = !asJson;
    fields.node.hidden = asJson;
    swap.textContent = asJson ? 'Back to the form' : 'Edit as JSON';
  }, { class: 'quiet small' });

  const form = h('form', { class: 'stack', 'aria-label': `Parameters of ${name}` },
    fields.node,
    raw.node,
    h('div', { class: 'row' },
      run,
      swap,
      h('div', { class: 'grow' }),
      h('label', { class: 'inline', for: 'run-timeout' }, 'Timeout', timeout, 's')));
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.noValidate = true; // the browser cannot check a hidden field, so the visible ones are checked below
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const visible = [...form.elements].filter((control) => control.checkVisibility());
    const invalid = visible.find((control) => !control.checkValidity());
    if (invalid) {
      invalid.reportValidity();
      return;
    }
    busy(run, async () => {
      const { params, files } = fields.read();
      const call = await post(address(['apps', app.session, 'calls']), {
        capability: name,
        params: raw.node.hidden ? params : (raw.read() ?? {}),
        files,
        timeout: Number(timeout.value),
        view: Boolean(capability.view),
      });
      addStarted(call);
      say(`${name} runs`);
      calls.prepend(panel(call.id));
      calls.firstChild.scrollIntoView({ block: 'nearest' });
    });
  });

  const folded = (title, value) => value && h('details', { class: 'schema' },
    h('summary', {}, title),
    h('div', { class: 'tree' }, tree(value)));
  const schemas = [folded('Input schema', capability.inputSchema), folded('Output schema', capability.outputSchema)];
  const heading = h('h2', { id: 'capability-title', tabindex: -1 }, name);
  place.replaceChildren(
    heading,
    h('p', {}, capability.description ?? ''),
    ...badges(capability),
    form,
    calls,
    ...schemas.filter(Boolean));
  showHeading(heading);
}
