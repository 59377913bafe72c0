// Tools of a frame; `echo` has the name of a tool of the page around it.

'use strict';
const context = document.modelContext;
const where = () => `${window.name} ${location.origin}`;
context?.registerTool({ name: 'echo', description: 'Say who answers', execute: (input) => ({ ...input, by: where() }) });
context?.registerTool({
  name: `file_${window.name}`,
  description: 'A file of this frame, by its blob: URL and as a buffer',
  execute() {
    const bytes = new Uint8Array(400_000).fill(7);
    const blobUrl = URL.createObjectURL(new Blob([bytes], { type: 'application/x-frame' }));
    return { content: [{ type: 'text', text: JSON.stringify({
      saved: { fileName: 'frame.bin', mimeType: 'application/x-frame', size: 400_000, blobUrl },
    }) }] };
  },
});
context?.registerTool({
  name: `effects_${window.name}`,
  description: 'Save a file, and copy a text',
  async execute() {
    const href = URL.createObjectURL(new Blob([`of ${window.name}`]));
    Object.assign(document.createElement('a'), { href, download: `${window.name}.txt` }).click();
    await navigator.clipboard.writeText(`copied in ${window.name}`);
    return { done: true };
  },
});
context?.registerTool({
  name: `leave_${window.name}`,
  description: 'The frame navigates and never answers',
  execute: () => new Promise(() => { location.href = 'about:blank'; }),
});
