// The markdown editor with its preview.

import { sanitise } from '../lib/sanitise.js';
import { $, attempt, save } from './dom.js';

const START = `# The quarter in brief

Sales grew by **18 %**, mostly *online*. The new shop opened in March.

| Month | Online | Shop |
|-------|-------:|-----:|
| Jan   |    120 |   80 |
| Feb   |    150 |   95 |
| Mar   |    190 |  130 |

> The best quarter since we started.

1. Keep the opening hours
2. Try the [new supplier](https://example.com/)

- [x] Write the report
- [ ] Send it
`;

export function startEditor(run) {
  const source = $('editor-source');
  let current = null;

  const preview = attempt(async () => {
    const markdown = source.value;
    current = await run('convert.markdownToHtml', { markdown });
    if (source.value !== markdown) return; // typed on in the meantime
    $('editor-preview').replaceChildren(sanitise(current.html.content).fragment);
    $('editor-words').textContent = `${current.words} ${current.words === 1 ? 'word' : 'words'}`;
  });

  source.value = START;
  source.addEventListener('input', preview);
  preview();

  $('editor-html').addEventListener('click', attempt(async () => {
    const { document: made } = await run('export.html', { markdown: source.value });
    save(new Blob([made.content], { type: made.mimeType }), made.filename);
  }));
  $('editor-print').addEventListener('click', attempt(async () => {
    await run('export.pdf', { html: current.html.content, title: current.title });
  }));
}
