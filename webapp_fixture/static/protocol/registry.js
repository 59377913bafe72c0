// Which capabilities there are and what runs them. The page's buttons and window.abp both come through `run`.

import { AbpError } from './errors.js';
import { validateParams } from './validate.js';

export class Registry {
  /** `definitions` are capabilities as data, each perhaps with `uses`: names of browser globals that it needs. */
  constructor(definitions, handlers) {
    this.entries = new Map();
    for (const definition of definitions) this.add(definition, handlers[definition.name]);
  }

  /** `listed: false` makes a capability callable without showing it. */
  add({ uses = [], ...definition }, handler, listed = true) {
    const requirements = uses.map((name) => ({
      type: 'browser',
      description: `the browser's ${name}`,
      met: name in globalThis,
      ...(name in globalThis ? {} : { resolution: `use a browser that has ${name}` }),
    }));
    const available = requirements.every((requirement) => requirement.met);
    const capability = { ...definition, available, requirements, features: definition.features ?? {} };
    this.entries.set(definition.name, { capability, handler, listed });
  }

  remove(name) {
    this.entries.delete(name);
  }

  list() {
    return Array.from(this.entries.values()).flatMap(({ capability, listed }) => (listed ? [{ ...capability }] : []));
  }

  describe(name) {
    const entry = this.entries.get(name);
    return entry ? structuredClone(entry.capability) : null;
  }

  /** Validate and run. `context` is {signal, callId, progress, notify, elicit}. */
  async run(name, params, context) {
    const entry = this.entries.get(name);
    if (!entry) {
      const alternatives = [...this.entries.keys()].filter((known) => known.split('.')[0] === String(name).split('.')[0]);
      throw new AbpError('UNKNOWN_CAPABILITY', `unknown capability '${name}'`, { alternatives: alternatives.slice(0, 10) });
    }
    const unmet = entry.capability.requirements.find((requirement) => !requirement.met);
    if (unmet) throw new AbpError('CAPABILITY_UNAVAILABLE', `${name} needs ${unmet.description}`);
    validateParams(params, entry.capability.inputSchema);
    return entry.handler(params, context);
  }
}
