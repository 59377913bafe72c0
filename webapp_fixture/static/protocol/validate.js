// Parameters against a capability's inputSchema: the part of JSON Schema that the definitions use.

import { AbpError } from './errors.js';

const TYPES = {
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === 'string',
  number: (value) => typeof value === 'number' && Number.isFinite(value),
  integer: Number.isInteger,
  boolean: (value) => typeof value === 'boolean',
  null: (value) => value === null,
};

const nameOf = (value) => {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value;
};

const fail = (code, path, message) => {
  throw new AbpError(code, `${path} ${message}`, { details: { param: path } });
};

function checkLimits(value, schema, path) {
  if (schema.enum && !schema.enum.includes(value)) {
    fail('INVALID_PARAMS', path, `must be one of ${schema.enum.join(', ')}, not ${JSON.stringify(value)}`);
  }
  if (value < schema.minimum) fail('INVALID_PARAMS', path, `must be at least ${schema.minimum}, not ${value}`);
  if (value > schema.maximum) fail('INVALID_PARAMS', path, `must be at most ${schema.maximum}, not ${value}`);
  if (value.length < schema.minLength || value.length < schema.minItems) fail('INVALID_PARAMS', path, 'must not be empty');
}

function check(value, schema, path) {
  if (schema.type) {
    const types = [schema.type].flat();
    if (!types.some((type) => TYPES[type](value))) {
      fail('INVALID_TYPE', path, `must be ${types.join(' or ')}, not ${nameOf(value)}`);
    }
  }
  if (value === null) return;
  checkLimits(value, schema, path);
  if (schema.items) value.forEach((item, at) => check(item, schema.items, `${path}[${at}]`));
  if (schema.properties) checkProperties(value, schema, `${path}.`);
}

function checkProperties(value, schema, prefix) {
  for (const name of schema.required ?? []) {
    if (value[name] === undefined) {
      const hint = schema.properties[name]?.description;
      fail('MISSING_PARAM', `${prefix}${name}`, `is required${hint ? `: ${hint}` : ''}`);
    }
  }
  for (const [name, inner] of Object.entries(schema.properties)) {
    if (value[name] !== undefined) check(value[name], inner, `${prefix}${name}`);
  }
}

/** Throws MISSING_PARAM, INVALID_TYPE or INVALID_PARAMS, naming the parameter. */
export function validateParams(params, schema) {
  if (!TYPES.object(params)) {
    throw new AbpError('INVALID_PARAMS', `params must be an object, not ${nameOf(params)}`);
  }
  if (schema?.properties) checkProperties(params, schema, '');
}
