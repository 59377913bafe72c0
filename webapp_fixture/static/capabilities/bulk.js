// Page option ?capabilities=N: so many more capabilities, for clients that must cope with long lists.

const inputSchema = { type: 'object', properties: { value: { type: 'string', description: 'Anything' } } };
const outputSchema = { type: 'object', properties: { name: { type: 'string' }, value: { type: 'string' } } };

export function addBulk(registry, count) {
  for (let at = 0; at < count; at += 1) {
    const name = `bulk.${String(at).padStart(6, '0')}`;
    const description = `Number ${at} of ${count} capabilities that make the list long`;
    registry.add({ name, description, inputSchema, outputSchema }, async ({ value = '' }) => ({ name, value }));
  }
}
