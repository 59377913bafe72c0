// The files the app holds, in memory. Starts with a few samples.

const sample = (name, mimeType, text) => [name, new Blob([text], { type: mimeType })];

class FileStore extends EventTarget {
  constructor() {
    super();
    this.files = new Map();
    const samples = [
      sample('welcome.md', 'text/markdown', '# Welcome\n\nDrop files here, or make some with the tools.\n'),
      sample('sales.csv', 'text/csv', 'Month,Online,Shop\nJan,120,80\nFeb,150,95\n'),
    ];
    for (const [name, blob] of samples) this.files.set(name, { blob, modified: '2024-01-15T09:00:00.000Z' });
  }

  /** Add under that name, or under 'name (2).ext' if it is taken. */
  add(name, blob) {
    const [, stem, extension] = /^(.*?)(\.[^.]*)?$/s.exec(name);
    let free = name;
    for (let count = 2; this.files.has(free); count += 1) free = `${stem} (${count})${extension ?? ''}`;
    this.files.set(free, { blob, modified: new Date().toISOString() });
    this.dispatchEvent(new Event('change'));
  }

  get(name) {
    return this.files.get(name)?.blob;
  }

  clear() {
    this.files.clear();
    this.dispatchEvent(new Event('change'));
  }

  list() {
    return Array.from(this.files, ([name, { blob, modified }]) => ({
      name,
      size: blob.size,
      mimeType: blob.type || 'application/octet-stream',
      modified,
    }));
  }
}

export const fileStore = new FileStore();
