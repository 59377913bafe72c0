// Files and data: file.generate, file.digest, file.list, files.clear, data.csv, data.json.

import { AbpError, Cancelled } from '../protocol/errors.js';
import { encodeBase64 } from '../lib/base64.js';
import { readBinary, sha256, wrapText } from '../lib/binary.js';
import { csvToItems, formatCsv } from '../lib/csv.js';
import { fileStore } from '../lib/filestore.js';
import { generateBlob, generateBytes } from '../generate.js';
import { downloadAddress } from '../lib/page.js';

const MEGABYTE = 1 << 20;
const MAX_TEXT = 256 * MEGABYTE; // as base64, more would not fit into one string

function sizeOf({ bytes, megabytes }) {
  if ((bytes === undefined) === (megabytes === undefined)) {
    throw new AbpError('MISSING_PARAM', 'give either bytes or megabytes', { details: { param: 'bytes' } });
  }
  return bytes ?? Math.round(megabytes * MEGABYTE);
}

async function contentOf(size, { seed, as, mimeType }) {
  if (as === 'buffer') return { content: generateBytes(size, seed).buffer };
  if (as === 'blob') return { content: generateBlob(size, seed, mimeType) };
  if (as === 'blobUrl') return { downloadUrl: URL.createObjectURL(generateBlob(size, seed, mimeType)) };
  if (size > MAX_TEXT) throw new AbpError('INVALID_PARAMS', `as ${as}, at most ${MAX_TEXT / MEGABYTE} MB`);
  const text = encodeBase64(generateBytes(size, seed));
  if (as === 'dataUrl') return { downloadUrl: `data:${mimeType};base64,${text}` };
  return { content: text, encoding: 'base64' };
}

/** With `as: auto` a file of more than 10 MB is a download that lives for an hour (docs/protocol.md 9.12, 10.4). */
function sizeBased(params, size) {
  if (params.as !== 'auto') return params;
  return size > 10 * MEGABYTE ? { expiresIn: 3600, ...params, as: 'url' } : { ...params, as: 'buffer' };
}

async function generateFile(given) {
  const size = sizeOf(given);
  const { seed = 0, as = 'buffer', auth = 'none', absolute = false, expiresIn, digest, ...named } = sizeBased(given, size);
  const { filename = 'generated.bin', mimeType = 'application/octet-stream' } = named;
  const file = { mimeType, size, filename };
  if (expiresIn !== undefined) file.expiresAt = Date.now() + Math.round(expiresIn * 1000);
  if (as === 'url') {
    const { expiresAt: expires } = file;
    const path = `downloads/${size}/${seed}/${encodeURIComponent(filename)}`;
    Object.assign(file, downloadAddress(path, { auth, absolute, expires, type: mimeType }));
  } else Object.assign(file, await contentOf(size, { seed, as, mimeType }));
  return digest ? { file, sha256: await sha256(generateBytes(size, seed)) } : { file };
}

async function digestFile({ file }) {
  const { bytes, received } = await readBinary(file, 'file');
  return { size: bytes.length, sha256: await sha256(bytes), received };
}

async function clearFiles(_params, { elicit }) {
  const files = fileStore.list().length;
  const message = files === 1 ? 'Remove the file from the list?' : `Remove all ${files} files from the list?`;
  const params = { message, title: 'Clear the file list', destructive: true, confirmLabel: 'Remove', cancelLabel: 'Keep' };
  const response = await elicit({ method: 'elicitation/confirm', params });
  if (!response.success || response.data?.confirmed !== true) throw new Cancelled('not confirmed');
  fileStore.clear();
  return { cleared: files };
}

async function rowsToCsv({ rows }) {
  return { file: wrapText(formatCsv(rows), 'text/csv', 'data.csv'), rows: rows.length };
}

export const files = {
  'file.generate': generateFile,
  'file.digest': digestFile,
  'file.list': async () => ({ files: fileStore.list() }),
  'files.clear': clearFiles,
  'data.csv': rowsToCsv,
  'data.json': async ({ csv }) => {
    const items = csvToItems(csv);
    return { items, count: items.length };
  },
};
