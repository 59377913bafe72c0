// One artifact in a dialog: preview, metadata, hash check, download, signed link, deletion.
import { address, get, post, remove } from './api.js';
import { calls } from './calls.js';
import { tree } from './content.js';
import { busy, button, confirm, copyButton, h, hrefOf, notice, say } from './dom.js';
import { emit, on } from './events.js';
import { duration, exactSize, moment, size } from './format.js';
import { cardOf, metaOf } from './grid.js';
import { preview } from './previews.js';
import { isSvg } from './thumbs.js';

const VERSIONS = 50; // listed versions
const EXPIRIES = [[300, '5 minutes'], [3600, '1 hour'], [86_400, '1 day'], [604_800, '7 days']];

/** Return whether a browser can show the artifact in a tab; the server sends other types as downloads. */
function opensInTab(meta) {
  if (meta.mime_type === 'text/plain') return true;
  return ['image', 'pdf', 'audio', 'video'].includes(meta.preview) && !isSvg(meta);
}

const dialog = h('dialog', { class: 'details', 'aria-labelledby': 'details-title' });
let openId = null;

/** A link to the call or the batch run that made the artifact, with the duration of the call. */
function maker(meta) {
  if (!meta.call) return meta.capability ?? 'an upload';
  const href = meta.run ? `#run=${meta.run}` : `#call=${encodeURIComponent(meta.call)}`;
  const milliseconds = calls.get(meta.call)?.duration_ms;
  return h('span', {},
    h('a', { href }, meta.capability ?? 'the call'),
    milliseconds ? ` in ${duration(milliseconds)}` : '');
}

function facts(meta) {
  const copied = (value, name) => [h('code', {}, value), copyButton(value, name)];
  const rows = [
    ['Type', meta.mime_type],
    ['Size', exactSize(meta.size_bytes)],
    ['Stored', moment(meta.created)],
    ['Made by', maker(meta)],
    ['App', meta.app],
    ['Session', meta.session],
    ['ID', copied(meta.id, 'ID')],
    ['URI', copied(meta.uri, 'URI')],
    ['SHA-256', copied(meta.sha256, 'SHA-256')],
  ];
  const row = ([name, value]) => [h('dt', {}, name), h('dd', { class: Array.isArray(value) && 'copied' }, value)];
  return h('dl', { class: 'facts-list' }, rows.filter(([, value]) => value).map(row));
}

function versions(name, current, metas) {
  const label = `Versions of ${name}`;
  const version = (meta) => {
    const stored = moment(meta.created);
    const isCurrent = meta.id === current.id;
    return h('li', {},
      isCurrent ? h('strong', {}, stored) : h('a', { href: hrefOf(meta.id) }, stored),
      h('span', { class: 'muted' }, ` ${size(meta.size_bytes)}`));
  };
  return [h('h3', {}, label), h('ul', { class: 'versions', 'aria-label': label }, metas.map(version))];
}

/** Details that need a request: other versions of the same name, source and scope. */
function more(meta) {
  const node = h('div', { class: 'stack tight' });
  async function load() {
    const { source, scope } = await get(address(['artifacts', meta.id, 'meta']));
    const name = source.requested_names?.at(-1);
    if (name) {
      const { artifacts } = await get(address(['artifacts'], { name, limit: VERSIONS }));
      if (artifacts.length > 1) node.append(...versions(name, meta, artifacts));
    }
    node.append(h('details', {},
      h('summary', {}, 'Source and scope'),
      h('div', { class: 'tree' }, tree({ source, scope }))));
  }
  load().catch(() => null); // the artifact may have been removed; the rest of the dialog reports it
  return node;
}

function hashCheck(meta) {
  const state = h('p', { class: 'state', role: 'status' });
  const check = button('Check hash', () => busy(check, async () => {
    state.textContent = 'Reading all of it …';
    state.className = 'state';
    try {
      const answer = await post(address(['artifacts', meta.id, 'verify']));
      const correct = `✓ ${size(answer.size_bytes)} read again; the SHA-256 is right`;
      state.textContent = answer.ok ? correct : '✗ The content is not what was stored';
      state.classList.add(answer.ok ? 'good' : 'bad');
    } catch (error) {
      state.textContent = '';
      throw error;
    }
  }));
  return [check, state];
}

function linkForm(meta) {
  const expires = h('select', { 'aria-label': 'The link works for' },
    EXPIRIES.map(([value, text]) => h('option', { value }, text)));
  expires.value = 3600;
  const result = h('div', { class: 'link-made', 'aria-live': 'polite' });
  const make = button('Make link', () => busy(make, async () => {
    const answer = await post(address(['artifacts', meta.id, 'link']), { expires: Number(expires.value) });
    const url = new URL(answer.url, location.href).href;
    result.replaceChildren(
      h('input', { readonly: true, value: url, 'aria-label': 'Signed link', onfocus: (event) => event.target.select() }),
      copyButton(url, 'link'),
      h('p', { class: 'muted' }, `Opens without a token until ${moment(answer.expires_at)}.`));
  }));
  return h('fieldset', {}, h('legend', {}, 'Share'), h('div', { class: 'row' }, expires, make), result);
}

function deleteButton(meta) {
  const node = button('Delete', async () => {
    if (!(await confirm(`Delete ${meta.filename}? This cannot be undone.`, 'Delete'))) return;
    await busy(node, async () => {
      await remove(address(['artifacts', meta.id]));
      say(`${meta.filename} deleted`);
      emit('artifact_removed', { id: meta.id });
    });
  }, { class: 'danger' });
  return node;
}

const close = () => dialog.close();

/** Show an artifact by id. */
export async function openDetails(id) {
  let meta;
  try {
    meta = await metaOf(id);
  } catch (error) {
    notice(error.status === 404 ? `no artifact ${id} in this store` : error.message);
    emit('details_closed');
    return;
  }
  openId = id;
  dialog.replaceChildren(
    h('header', {},
      h('h2', { id: 'details-title', tabindex: -1, autofocus: true }, meta.filename),
      button('×', close, { class: 'quiet', 'aria-label': 'Close' })),
    h('div', { class: 'body' },
      preview(meta),
      h('aside', { 'aria-label': 'About this artifact' },
        h('div', { class: 'row' },
          h('a', { class: 'button primary', href: `${meta.url}?download`, download: '' }, 'Download'),
          opensInTab(meta) && h('a', { class: 'button', href: meta.url, target: '_blank', rel: 'noopener' }, 'Open')),
        facts(meta),
        more(meta),
        hashCheck(meta),
        linkForm(meta),
        !meta.run && deleteButton(meta))));
  if (!dialog.open) dialog.showModal();
}

export function closeDetails() {
  if (dialog.open) dialog.close();
}

document.body.append(dialog);
dialog.addEventListener('close', () => {
  const id = openId;
  openId = null;
  dialog.replaceChildren(); // stops sound and video
  emit('details_closed');
  // The browser returns the focus to the earlier element if it still exists.
  if (document.activeElement === document.body) cardOf(id)?.focus();
});
dialog.addEventListener('click', (event) => {
  if (event.target === dialog) close(); // a click on the backdrop
});
on('artifact_removed', ({ id }) => {
  if (id === openId) close();
});
on('signed_out', closeDetails);
