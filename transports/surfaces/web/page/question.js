// Question of an app during a call (elicitation) as a small form. The shape of the answer depends on the method.
import { address, post } from './api.js';
import { busy, button, h, say } from './dom.js';
import { field } from './form.js';

const DECLINED = { success: false, cancelled: true };

/** Return the key of a question's answer, the schema of its field, and the label. */
function shape(method, params) {
  const own = params.schema ?? {};
  const label = params.label ?? 'Answer';
  if (method === 'elicitation/select') {
    const options = (params.options ?? own.enum ?? []).map((option) => (option !== null && typeof option === 'object' ? option : { value: option }));
    const titles = options.map((option) => option.label ?? option.title ?? String(option.value));
    return ['selected', { enum: options.map((option) => option.value), enumNames: titles, default: params.default }, label];
  }
  if (method === 'elicitation/resource') return ['content', { type: 'string' }, 'Content'];
  if (method === 'sampling/create') return ['result', { type: 'string' }, 'Answer of a model'];
  return ['value', { type: 'string', ...own, default: params.default ?? own.default }, label];
}

/** Return a form that answers the question of a call. */
export function question(call) {
  const { method, params = {} } = call.question;
  const message = params.message ?? params.prompt ?? params.title ?? 'The app asks:';
  say(`Question: ${message}`);
  const send = (node, answer) => busy(node, () => post(address(['calls', call.id, 'answer']), answer));
  const decline = button('Decline', () => send(decline, DECLINED), { class: 'quiet' });
  const box = (...children) => h('form', { class: 'question', 'aria-label': 'The app asks' }, h('p', {}, message), children);

  if (method === 'elicitation/confirm') {
    const choice = (text, confirmed, kind) => {
      const node = button(text, () => send(node, { success: true, data: { confirmed } }), { class: kind });
      return node;
    };
    const yes = choice('Yes', true, params.destructive ? 'danger' : 'primary');
    return box(h('div', { class: 'row' }, yes, choice('No', false), decline));
  }
  const [key, schema, label] = shape(method, params);
  const given = field(schema, { label, required: true, path: [] });
  const answer = h('button', { class: 'primary' }, 'Answer');
  const node = box(given.node, h('div', { class: 'row' }, answer, decline));
  node.addEventListener('submit', (event) => {
    event.preventDefault();
    const data = { [key]: given.read() };
    if (key === 'content') data.mimeType = params.mimeType ?? 'text/plain';
    send(answer, { success: true, data });
  });
  return node;
}
