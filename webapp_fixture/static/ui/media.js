// The image card and the tone card.

import { $, acceptDrops, attempt, firstLook, save, sizeText } from './dom.js';

export function startImage(run) {
  let chosen = null;

  async function show(blob) {
    const bitmap = await createImageBitmap(blob);
    const canvas = $('image-canvas');
    const scale = Math.min(1, 480 / bitmap.width, 320 / bitmap.height);
    canvas.width = Math.max(1, bitmap.width * scale);
    canvas.height = Math.max(1, bitmap.height * scale);
    canvas.getContext('2d').drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    canvas.hidden = false;
    bitmap.close();
  }

  const choose = attempt(async ([file]) => {
    if (!file) return;
    const info = await run('image.info', { image: { content: file, mimeType: file.type } });
    chosen = file;
    await show(file);
    $('image-label').textContent = file.name;
    $('image-hint').textContent = `${info.width} × ${info.height} pixels, ${sizeText(info.size)}`;
    $('image-resize').disabled = false;
  });

  $('image-file').addEventListener('change', (event) => choose(event.target.files));
  acceptDrops($('image-drop'), choose);

  $('image-resize').addEventListener('click', attempt(async () => {
    const image = { content: chosen, mimeType: chosen.type, filename: chosen.name };
    const width = $('image-width').valueAsNumber;
    const resized = await run('image.resize', { image, width, format: $('image-format').value });
    await show(resized.image.content);
    $('image-hint').textContent = `now ${resized.width} × ${resized.height} pixels, ${sizeText(resized.image.size)}`;
    save(resized.image.content, resized.image.filename);
  }));
}

export function startTone(run) {
  const frequency = $('tone-frequency');
  const audio = $('tone-audio');

  const make = async () => {
    const seconds = $('tone-seconds').valueAsNumber;
    const { audio: made } = await run('audio.tone', { frequency: frequency.valueAsNumber, seconds });
    const blob = new Blob([made.content], { type: made.mimeType });
    if (audio.src) URL.revokeObjectURL(audio.src);
    audio.src = URL.createObjectURL(blob);
    return [blob, made.filename];
  };

  frequency.addEventListener('input', () => {
    $('tone-hertz').textContent = `${frequency.value} Hz`;
  });
  for (const id of ['tone-frequency', 'tone-seconds']) $(id).addEventListener('change', attempt(make));
  $('tone-make').addEventListener('click', attempt(async () => save(...(await make()))));
  firstLook(audio, attempt(make));
}
