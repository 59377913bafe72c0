// Tools that answer in every form that pages use, and misbehave in the ways that pages do.

'use strict';
const context = document.modelContext ?? navigator.modelContext;
const record = { aborted: [], ordered: [] };
const block = (value) => ({ content: [{ type: 'text', text: JSON.stringify(value) }] });
const bytesOf = (size) => {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += 1) bytes[at] = at % 251;
  return bytes;
};
const dataUrl = (bytes, type) => `data:${type};base64,${btoa(String.fromCharCode(...bytes))}`;
const tool = (name, description, inputSchema, execute, annotations) =>
  context.registerTool({ name, description, inputSchema: { type: 'object', ...inputSchema }, execute, annotations });

tool('echo', 'Answer the input', { properties: { text: { type: 'string' } }, required: ['text'] },
  (input) => ({ ...input, by: 'top' }), { readOnlyHint: true, untrustedContentHint: true });

tool('bytes', 'A buffer in a descriptor', { properties: { size: { type: 'integer' }, declared: { type: 'integer' } } },
  ({ size = 300_000, declared = size }) =>
    ({ document: { content: new ArrayBuffer(size), mimeType: 'application/pdf', size: declared, filename: 'report.bin' } }));

tool('file', 'A file in the form that is asked for', { properties: { as: { type: 'string' }, size: { type: 'integer' }, declared: { type: 'integer' } } },
  ({ as, size = 1000, declared = size }) => {
    const bytes = bytesOf(size), type = 'application/x-case', blob = new Blob([bytes], { type });
    const described = { fileName: 'case.bin', mimeType: type, size: declared };
    switch (as) {
      case 'blobUrl': return block({ file: { ...described, blobUrl: (record.url = URL.createObjectURL(blob)) } });
      case 'dataUrl': return block({ file: { ...described, dataUrl: dataUrl(bytes, type) } });
      case 'stream': return { file: blob.stream() };
      case 'view': return { file: new Uint16Array(bytes.buffer, 0, size / 2) };
      case 'file': return { file: new File([bytes], 'case.bin', { type }) };
      case 'image': return { content: [{ type: 'text', text: 'a picture' }, { type: 'image', data: btoa(String.fromCharCode(...bytes)), mimeType: 'image/png' }] };
      case 'big': return { content: [{ type: 'image', data: btoa(String.fromCharCode(...bytesOf(90_000))), mimeType: 'image/png' }] };
      default: return `no form ${as}`;
    }
  });

tool('fail', 'Fail in one of the ways', { properties: { how: { type: 'string' } } }, ({ how }) => {
  switch (how) {
    case 'throw': throw new RangeError('out of range');
    case 'isError': return { isError: true, content: [{ type: 'text', text: 'the words of the tool' }] };
    case 'json': return block({ success: false, error: 'the kernel died', isError: true });
    case 'code': return { success: false, error: { code: 'NO_SHEET', message: 'there is no sheet', retryable: true } };
    default: return 'a bare text';
  }
});

tool('wait', 'Never answer', {}, (_, { signal }) => new Promise((resolve, reject) => {
  signal.addEventListener('abort', () => { record.aborted.push(String(signal.reason?.message)); reject(signal.reason); });
}));
tool('record', 'What has happened here', {}, () => ({ ...record, value: document.querySelector('#order input')?.value }));

let later = null;
tool('toggle', 'Another tool comes and goes', {}, () => {
  later?.abort();
  if (later) { later = null; return { there: false }; }
  later = new AbortController();
  context.registerTool({ name: 'later', description: 'Comes and goes', execute: () => 'here' }, { signal: later.signal });
  return { there: true };
});
tool('forget', 'The page takes the platform\'s object away', {}, () => {
  delete Document.prototype.modelContext;
  delete Navigator.prototype.modelContext;
  return { document: 'modelContext' in document, navigator: 'modelContext' in navigator };
});
tool('reload', 'The page reloads and never answers', {}, () => new Promise(() => { location.reload(); }));
tool('effects', 'Print, save a file, copy a text, and open a window that shows a file', {}, async () => {
  window.print();
  await navigator.clipboard.writeText('copied');
  window.open(URL.createObjectURL(new Blob(['shown'], { type: 'text/plain' })));
  const link = Object.assign(document.createElement('a'), { href: URL.createObjectURL(new Blob(['saved'])), download: 'saved.txt' });
  link.click();
  return { asked: window.confirm('Sure?') };
});

const data = { type: 'string', description: 'The content' };
tool('take', 'Take files in three forms', { properties: {
  url: { type: 'string', description: 'The image as a data URL' },
  text: { type: 'string', contentEncoding: 'base64' },
  object: { type: 'object', properties: { name: { type: 'string' }, type: { type: 'string' }, data, size: { type: 'integer' } } },
} }, (input) => input);
tool('numbers', 'A number that no double holds', {}, () => '{"exact": 9007199254740993}');

document.addEventListener('submit', (event) => {
  const values = Object.fromEntries(new FormData(event.target));
  if (event.target.id === 'subscribe') {
    event.preventDefault();
    if (values.address === 'refused') { event.respondWith?.(Promise.reject(new Error('no such address'))); return; }
    event.respondWith?.(Promise.resolve({ ...values, card: { content: bytesOf(500), mimeType: 'image/png', size: 500 } }));
  } else if (event.target.id === 'order') {
    event.preventDefault();
    record.ordered.push(values);
    event.respondWith?.(Promise.resolve(values));
  }
});
