// JSON Schema of one field, as far as a form needs it.

const MAX_DEPTH = 6; // levels; deeper or recursive schemas are edited as JSON

/** Return the schema with local references resolved, and with a union with `null` made optional. */
export function resolve(schema, root, depth = 0) {
  if (schema === true || schema === undefined || schema === null) return {};
  if (typeof schema.$ref === 'string' && depth < MAX_DEPTH) {
    const target = referred(schema.$ref, root);
    return { ...(target && resolve(target, root, depth + 1)), ...without(schema, '$ref') };
  }
  const branches = (schema.oneOf ?? schema.anyOf)?.filter((branch) => branch?.type !== 'null');
  if (branches?.length === 1) {
    return resolve({ ...without(schema, 'oneOf', 'anyOf'), ...branches[0] }, root, depth + 1);
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== 'null');
    return types.length === 1 ? { ...schema, type: types[0] } : without(schema, 'type');
  }
  return schema;
}

/** Return the part of the schema that a local reference names, if any. */
function referred(reference, root) {
  if (!reference.startsWith('#/')) return undefined;
  let part = root;
  for (const step of reference.slice(2).split('/')) part = part?.[step.replaceAll('~1', '/').replaceAll('~0', '~')];
  return part;
}

function without(schema, ...keys) {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !keys.includes(name)));
}

/** Return whether a field takes a file: ABP's BinaryData, or text that is declared as a file. */
export function isBinary(schema) {
  const parts = schema.properties ?? {};
  if ('content' in parts && ('mimeType' in parts || 'encoding' in parts)) return true;
  if (schema.format === 'binary' || schema.format === 'byte') return true;
  return 'contentEncoding' in schema || 'contentMediaType' in schema;
}

/** Return the kind of a field: const, enum, file, boolean, number, string, object, array, or json for all others. */
export function kindOf(schema, depth) {
  if ('const' in schema) return 'const';
  if (Array.isArray(schema.enum) && schema.enum.length) return 'enum';
  if (isBinary(schema)) return 'file';
  if (schema.oneOf || schema.anyOf || schema.allOf || depth > MAX_DEPTH) return 'json';
  if (schema.type === 'integer') return 'number';
  if (schema.type === 'object' || schema.properties) return Object.keys(schema.properties ?? {}).length ? 'object' : 'json';
  if (schema.type === 'array') return schema.items && !Array.isArray(schema.items) ? 'array' : 'json';
  return ['boolean', 'number', 'string'].includes(schema.type) ? schema.type : 'json';
}
