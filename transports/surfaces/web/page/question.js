// Question of an app during a call (elicitation) as a small form. The shape of the answer depends on the method.
import { address, post } from './api.js';
import { busy, button, h, say } from './dom.js';
import { field } from './form.js';

const DECLINED = { success: false, cancelled: true };
/** Parameters with the text of a question, in the order in which they are shown. */
const TEXTS = ['title', 'message', 'description', 'prompt', 'question', 'task', 'context', 'text', 'type', 'uri'];
const DESTRUCTIVE = 'Destructive: the app says that this may delete or overwrite something.';

/** Return the lines that the user reads: the texts of the question, and whether its action is destructive. */
function lines(params, isDestructive) {
  const messages = Array.isArray(params.messages) ? params.messages : [];
  const texts = [
    params.systemPrompt,
    ...messages.map((message) => message?.content?.text ?? message?.content ?? message?.text),
    ...TEXTS.map((key) => params[key]),
  ].filter((text) => typeof text === 'string' && text !== '');
  const shown = texts.length > 0 ? [...new Set(texts)] : ['The app asks:'];
  return isDestructive ? [...shown, DESTRUCTIVE] : shown;
}

/** Return the key of a question's answer, the schema of its field, and the label. */
function shape(method, params) {
  const schema = params.schema ?? {};
  const label = params.label ?? 'Answer';
  if (method === 'elicitation/select') {
    const isObject = (option) => option !== null && typeof option === 'object';
    const declared = params.options ?? schema.enum ?? [];
    const options = declared.map((option) => (isObject(option) ? option : { value: option }));
    const values = options.map((option) => option.value);
    const titles = options.map((option) => option.label ?? option.title ?? String(option.value));
    return ['selected', { enum: values, enumNames: titles, default: params.default }, label];
  }
  if (method === 'elicitation/resource') return ['content', { type: 'string' }, 'Content'];
  if (method === 'sampling/create') return ['result', { type: 'string' }, 'Answer of a model'];
  return ['value', { type: 'string', ...schema, default: params.default ?? schema.default }, label];
}

/** Return a form that answers the question of a call. */
export function question(call) {
  const { method, params = {} } = call.question;
  const isDestructive = Boolean(params.destructive || params.schema?.destructive);
  const texts = lines(params, isDestructive);
  say(`Question: ${texts.join(' ')}`);
  const send = (node, answer) => busy(node, () => post(address(['calls', call.id, 'answer']), answer));
  const decline = button('Decline', () => send(decline, DECLINED), { class: 'quiet' });
  const box = (...children) => h('form', { class: 'question', 'aria-label': 'The app asks' },
    texts.map((text) => h('p', {}, text)),
    children);

  if (method === 'elicitation/confirm') {
    const choice = (text, confirmed, kind) => {
      const node = button(text, () => send(node, { success: true, data: { confirmed } }), { class: kind });
      return node;
    };
    const yes = choice('Yes', true, isDestructive ? 'danger' : 'primary');
    return box(h('div', { class: 'row' }, yes, choice('No', false), decline));
  }
  const [key, schema, label] = shape(method, params);
  const input = field(schema, { label, required: true, path: [] });
  const answer = h('button', { class: 'primary' }, 'Answer');
  const node = box(input.node, h('div', { class: 'row' }, answer, decline));
  node.addEventListener('submit', (event) => {
    event.preventDefault();
    const data = { [key]: input.read() };
    if (key === 'content') data.mimeType = params.mimeType ?? 'text/plain';
    send(answer, { success: true, data });
  });
  return node;
}
