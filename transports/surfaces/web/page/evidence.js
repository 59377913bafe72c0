// Evidence of a call: picture, video, console, requests, trace. Each is loaded when opened.
import { copyButton, h, hrefOf } from './dom.js';
import { size } from './format.js';
import { metaOf } from './grid.js';
import { preview } from './previews.js';

const TITLES = { screenshot: 'Picture at the end', video: 'Video', console: 'Console', har: 'Requests', trace: 'Trace' };

/** The line below a preview: a link to the file, and for a trace the command that shows it. */
function foot(meta) {
  const command = meta.evidence === 'trace' && `playwright show-trace '${meta.filename.replaceAll("'", "'\\''")}'`;
  return h('p', { class: 'row evidence-foot' },
    h('a', { href: `${meta.url}?download`, download: '' }, 'Download'),
    h('a', { href: hrefOf(meta.id) }, 'Details'),
    h('span', { class: 'muted' }, size(meta.size_bytes)),
    command && [h('code', {}, command), copyButton(command, 'command')]);
}

function recording(kind, id, open) {
  const node = h('details', { 'data-evidence': kind }, h('summary', {}, TITLES[kind] ?? kind));
  node.addEventListener('toggle', async () => {
    try {
      const meta = await metaOf(id);
      if (kind !== 'trace') node.append(preview(meta));
      node.append(foot(meta));
    } catch (error) {
      node.append(h('p', { class: 'muted' }, error.status === 404 ? 'It is no longer kept.' : error.message));
    }
  }, { once: true });
  node.open = open;
  return node;
}

/** The evidence of an ended call. The picture of a failed call is open. */
export function evidence(call) {
  const order = Object.keys(TITLES);
  const recordings = Object.entries(call.evidence).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  return h('section', { class: 'evidence stack tight', 'aria-label': 'Evidence of this call' },
    h('h3', {}, 'Evidence'),
    recordings.map(([kind, id]) => recording(kind, id, kind === 'screenshot' && call.status === 'failed')));
}
