// The parts of JSON Schema that a form needs for one field.

const MAX_DEPTH = 6; // levels; deeper, or recursive, is edited as JSON

/** The schema itself: local references followed, a union with `null` made optional. */
export function resolve(schema, root, depth = 0) {
  if (schema === true || schema === undefined || schema === null) return {};
  if (typeof schema.$ref === 'string' && depth < MAX_DEPTH) {
    const steps = schema.$ref.startsWith('#/') ? schema.$ref.slice(2).split('/') : [];
    const found = steps.reduce((at, step) => at?.[step.replaceAll('~1', '/').replaceAll('~0', '~')], root);
    return steps.length && found ? { ...resolve(found, root, depth + 1), ...without(schema, '$ref') } : without(schema, '$ref');
  }
  const union = schema.oneOf ?? schema.anyOf;
  const real = union?.filter((option) => option?.type !== 'null');
  if (real?.length === 1) return resolve({ ...without(without(schema, 'oneOf'), 'anyOf'), ...real[0] }, root, depth + 1);
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== 'null');
    return types.length === 1 ? { ...schema, type: types[0] } : without(schema, 'type');
  }
  return schema;
}

const without = (schema, key) => Object.fromEntries(Object.entries(schema).filter(([name]) => name !== key));

/** Whether a field takes a file: ABP's BinaryData, or text that is declared to be one. */
export function isBinary(schema) {
  const parts = schema.properties ?? {};
  if ('content' in parts && ('mimeType' in parts || 'encoding' in parts)) return true;
  return schema.format === 'binary' || schema.format === 'byte' || 'contentEncoding' in schema || 'contentMediaType' in schema;
}

/** Which kind of field: const, enum, file, boolean, number, string, object, array, or json for everything else. */
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
