// The file list.

import { fileStore } from '../lib/filestore.js';
import { $, acceptDrops, attempt, sizeText } from './dom.js';

function item({ name, size, mimeType }) {
  const element = document.createElement('li');
  const link = document.createElement('a');
  link.textContent = name;
  link.href = '#files-title';
  link.addEventListener('click', (event) => {
    event.preventDefault();
    const download = document.createElement('a');
    download.href = URL.createObjectURL(fileStore.get(name));
    download.download = name;
    download.click();
    setTimeout(() => URL.revokeObjectURL(download.href), 60_000);
  });
  const about = document.createElement('span');
  about.textContent = `${mimeType}, ${sizeText(size)}`;
  element.append(link, about);
  return element;
}

export function startFiles(run) {
  const show = attempt(async () => {
    const { files } = await run('file.list', {});
    $('files-list').replaceChildren(...files.map(item));
    $('files-clear').disabled = files.length === 0;
  });
  const add = (files) => {
    for (const file of files) fileStore.add(file.name, file);
  };
  fileStore.addEventListener('change', show);
  $('files-add').addEventListener('change', (event) => add(event.target.files));
  acceptDrops($('files-card'), add);
  $('files-clear').addEventListener('click', attempt(() => run('files.clear', {})));
  show();
}
