// Puts the parts together: the registry, window.abp as the page's options say, and the user interface.

import { breakRules } from './breaks.js';
import { addBulk } from './capabilities/bulk.js';
import { documents } from './capabilities/documents.js';
import { addFaults } from './capabilities/faults.js';
import { files } from './capabilities/files.js';
import { jobs, recordHandlers } from './capabilities/jobs.js';
import { media } from './capabilities/media.js';
import { shapes } from './capabilities/shape.js';
import { toggleHandlers } from './capabilities/toggle.js';
import { definitions } from './lib/page.js';
import { installPrinting } from './lib/print.js';
import { options } from './options.js';
import { createAbp } from './protocol/abp.js';
import { Calls } from './protocol/calls.js';
import { Client } from './protocol/client.js';
import { Record } from './protocol/record.js';
import { Registry } from './protocol/registry.js';
import { startInterface } from './ui/main.js';

const record = new Record(window.workbenchFirst);
const handlers = { ...documents, ...media, ...files, ...jobs, ...shapes, ...recordHandlers(record) };
Object.assign(handlers, toggleHandlers(() => registry, (changes) => client.capabilitiesChanged(changes)));
const registry = new Registry(definitions.capabilities, handlers);
addFaults(registry, definitions.faults, options);
addBulk(registry, options.capabilities);

const client = new Client(options.ownevents, record);
const calls = new Calls(registry, client, record, options.canceltype);
const abp = createAbp({
  app: definitions.app,
  registry,
  calls,
  client,
  options,
  onSession: (agent) => record.session(agent),
});

breakRules(abp, registry, client, options.breaks);

function publish() {
  if (options.throws) {
    Object.defineProperty(window, 'abp', {
      configurable: true,
      get() {
        throw new Error('reading window.abp throws on this page');
      },
    });
  } else window.abp = abp;
}

installPrinting();
if (options.late) setTimeout(publish, options.late);
else if (!options.absent) publish();
if (document.querySelector('main')) startInterface(registry, record);
