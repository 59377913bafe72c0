// The user interface: each card runs the same capabilities that programs call.

import { startChart } from './chart.js';
import { askPerson } from './dom.js';
import { startEditor } from './editor.js';
import { startFiles } from './files.js';
import { startLog } from './log.js';
import { startImage, startTone } from './media.js';

export function startInterface(registry, record) {
  const run = (name, params) => {
    const signal = new AbortController().signal;
    return registry.run(name, params, { callId: 'page', signal, progress() {}, notify() {}, elicit: askPerson });
  };
  startEditor(run);
  startChart(run);
  startImage(run);
  startTone(run);
  startFiles(run);
  startLog(record);
}
