// app.toggle: a capability that comes and goes while the app runs.

import { AbpError } from '../protocol/errors.js';

const inputSchema = { type: 'object', properties: { name: { type: 'string', description: 'Who is greeted' } } };
const outputSchema = { type: 'object', properties: { greeting: { type: 'string', description: 'A greeting' } } };
const greet = async ({ name = 'world' }) => ({ greeting: `Hello, ${name}` });

/** Give the registry app.toggle; `changed` takes {added, removed, changed}. */
export function toggleHandlers(registry, changed) {
  const extra = new Set();
  return {
    'app.toggle': async ({ capability = 'extra.hello' }) => {
      if (registry().entries.has(capability) && !extra.has(capability)) {
        throw new AbpError('INVALID_PARAMS', `${capability} is always there; give a name of your own`);
      }
      const available = !extra.delete(capability);
      if (available) {
        extra.add(capability);
        const description = 'A greeting, from a capability that was added while the app ran';
        registry().add({ name: capability, description, inputSchema, outputSchema }, greet);
      } else registry().remove(capability);
      changed({ added: available ? [capability] : [], removed: available ? [] : [capability], changed: [] });
      return { capability, available };
    },
  };
}
