// Pictures and sound: chart.render, image.resize, image.info, export.pages, audio.tone.

import { AbpError } from '../protocol/errors.js';
import { encodeBase64 } from '../lib/base64.js';
import { filenameFor, readBinary, sha256, wrapBlob } from '../lib/binary.js';
import { chartData, drawChart } from '../lib/chart.js';
import { encodeWav } from '../lib/wav.js';

const extensionOf = (blob) => blob.type.replace('image/', '').replace('jpeg', 'jpg');

function canvasOf(width, height) {
  const canvas = new OffscreenCanvas(width, height);
  return [canvas, canvas.getContext('2d')];
}

async function renderChart({ csv, type = 'bar', format = 'png', width = 800, height = 450, title = '', as = 'blob' }) {
  const data = chartData(csv);
  const [canvas, context] = canvasOf(width, height);
  drawChart(context, data, { type, width, height, title });
  const blob = await canvas.convertToBlob({ type: `image/${format}`, quality: 0.92 });
  const points = data.labels.length;
  if (as === 'flat') {
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return { image: encodeBase64(bytes), mimeType: blob.type, size: blob.size, points };
  }
  const image = await wrapBlob(blob, filenameFor(title || 'chart', extensionOf(blob)), as);
  return { image, points, series: data.series.length };
}

async function decodeImage(value) {
  const read = await readBinary(value, 'image');
  try {
    const bitmap = await createImageBitmap(new Blob([read.bytes], { type: read.mimeType }));
    return { ...read, bitmap };
  } catch {
    throw new AbpError('INVALID_PARAMS', `image.content (${read.bytes.length} bytes) is not an image this browser can read`);
  }
}

async function resizeImage({ image, width, height, format = 'png' }) {
  const { bitmap, bytes } = await decodeImage(image);
  const original = { width: bitmap.width, height: bitmap.height, size: bytes.length };
  const high = height ?? Math.max(1, Math.round((width * bitmap.height) / bitmap.width));
  const [canvas, context] = canvasOf(width, high);
  context.imageSmoothingQuality = 'high';
  if (format === 'jpeg') {
    context.fillStyle = '#ffffff';
    context.fillRect(0, 0, width, high);
  }
  context.drawImage(bitmap, 0, 0, width, high);
  bitmap.close();
  const blob = await canvas.convertToBlob({ type: `image/${format}`, quality: 0.92 });
  const stem = (image.filename ?? 'image').replace(/\.\w+$/, '');
  return { image: await wrapBlob(blob, filenameFor(`${stem} ${width}x${high}`, extensionOf(blob))), width, height: high, original };
}

async function imageInfo({ image }) {
  const { bitmap, bytes, received } = await decodeImage(image);
  const info = { width: bitmap.width, height: bitmap.height, size: bytes.length, sha256: await sha256(bytes), received };
  bitmap.close();
  return info;
}

async function exportPages({ count, width = 420, height = 594 }, { signal, progress }) {
  const pages = [];
  for (let number = 1; number <= count; number += 1) {
    signal.throwIfAborted();
    const [canvas, context] = canvasOf(width, height);
    context.fillStyle = '#ffffff';
    context.fillRect(0, 0, width, height);
    context.fillStyle = '#2f6fdb';
    context.fillRect(0, 0, width, Math.ceil(height / 40));
    context.fillStyle = '#1f2430';
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.font = `600 ${Math.round(height / 5)}px system-ui, sans-serif`;
    context.fillText(number, width / 2, height / 2);
    const blob = await canvas.convertToBlob({ type: 'image/png' });
    pages.push({ number, image: await wrapBlob(blob, `page-${String(number).padStart(3, '0')}.png`) });
    progress({ progress: number, total: count, stage: 'pages' });
  }
  return { pages, count };
}

async function tone({ frequency = 440, seconds = 1, sampleRate = 44100 }) {
  const length = Math.round(seconds * sampleRate);
  const context = new OfflineAudioContext(1, length, sampleRate);
  const gain = new GainNode(context, { gain: 0 });
  const fade = Math.min(0.02, seconds / 4);
  gain.gain.setValueAtTime(0, 0);
  gain.gain.linearRampToValueAtTime(0.8, fade);
  gain.gain.setValueAtTime(0.8, seconds - fade);
  gain.gain.linearRampToValueAtTime(0, seconds);
  const oscillator = new OscillatorNode(context, { frequency });
  oscillator.connect(gain).connect(context.destination);
  oscillator.start();
  const rendered = await context.startRendering();
  const content = encodeWav(rendered.getChannelData(0), sampleRate);
  const filename = `tone-${Math.round(frequency)}hz.wav`;
  return { audio: { content, mimeType: 'audio/wav', size: content.byteLength, filename }, duration: length / sampleRate };
}

export const media = {
  'chart.render': renderChart,
  'image.resize': resizeImage,
  'image.info': imageInfo,
  'export.pages': exportPages,
  'audio.tone': tone,
};
