// Pictures and sound: chart.render, generate.qrcode, image.resize, image.info, export.pages, audio.tone.

import { AbpError } from '../protocol/errors.js';
import { encodeBase64 } from '../lib/base64.js';
import { filenameFor, readBinary, sha256, wrapBlob } from '../lib/binary.js';
import { chartData, drawChart } from '../lib/chart.js';
import { generate, mode } from '../lib/leanqr.js';
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

// Other modes are shorter for some languages, but readers take their characters for those of another encoding.
const MODES = [mode.numeric, mode.alphaNumeric, mode.ascii, mode.utf8];
const QUIET = 4; // modules of white around a code (ISO/IEC 18004)

async function qrCode({ text, scale = 8 }) {
  let code;
  try {
    code = generate(text, { minCorrectionLevel: 1, modes: MODES }); // M or better: 15 % of it may be unreadable
  } catch {
    throw new AbpError('INVALID_PARAMS', `text (${text.length} characters) is more than a QR code holds`);
  }
  const side = (code.size + 2 * QUIET) * scale;
  const [canvas, context] = canvasOf(side, side);
  context.fillStyle = '#ffffff';
  context.fillRect(0, 0, side, side);
  context.fillStyle = '#000000';
  for (let y = 0; y < code.size; y += 1) {
    for (let x = 0; x < code.size; x += 1) {
      if (code.get(x, y)) context.fillRect((x + QUIET) * scale, (y + QUIET) * scale, scale, scale);
    }
  }
  const blob = await canvas.convertToBlob({ type: 'image/png' });
  return { image: await wrapBlob(blob, 'qr-code.png'), modules: code.size };
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
  'generate.qrcode': qrCode,
  'image.resize': resizeImage,
  'image.info': imageInfo,
  'export.pages': exportPages,
  'audio.tone': tone,
};
