// Card previews of videos and sounds, made by the browser when the card is first seen, with limits.
import { slice } from './api.js';
import { h } from './dom.js';

const LARGEST_SOUND = 4_000_000; // bytes, and seconds below: a short file may hold hours of silence
const LONGEST_SOUND = 600;
const RATE = 8000; // samples per second of a decoded sound
const BARS = 48;

const peaksOf = new Map(); // of sounds, by id: each is decoded once
let decoding = Promise.resolve(); // one at a time

/** A frame near the beginning of a video. The browser requests only the parts that it needs. */
export function videoFrame(meta) {
  return new Promise((resolve, reject) => {
    const video = h('video', {
      src: `${meta.url}#t=0.2`,
      preload: 'metadata',
      muted: true,
      playsinline: true,
      tabindex: -1,
      'aria-hidden': true,
    });
    video.addEventListener('loadeddata', () => resolve(video), { once: true });
    video.addEventListener('error', reject, { once: true });
  });
}

function seconds(meta) {
  return new Promise((resolve, reject) => {
    const sound = h('audio', { src: meta.url, preload: 'metadata' });
    sound.addEventListener('loadedmetadata', () => resolve(sound.duration), { once: true });
    sound.addEventListener('error', reject, { once: true });
  });
}

async function decode(meta) {
  const length = await seconds(meta);
  if (!(length <= LONGEST_SOUND)) throw new Error('too long'); // also if the length is unknown
  const bytes = await slice(meta.id, 0, meta.size_bytes);
  const sound = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(bytes.buffer);
  const samples = sound.getChannelData(0);
  const step = Math.max(1, Math.floor(samples.length / BARS));
  const peakOf = (part) => part.reduce((peak, value) => Math.max(peak, Math.abs(value)), 0);
  return Array.from({ length: BARS }, (_, bar) => peakOf(samples.subarray(bar * step, (bar + 1) * step)));
}

/** The loudness of a sound over its time, as bars. */
export async function waveform(meta) {
  if (meta.size_bytes > LARGEST_SOUND) throw new Error('too large');
  if (!peaksOf.has(meta.id)) {
    const peaks = decoding.then(() => decode(meta));
    decoding = peaks.catch(() => null);
    peaksOf.set(meta.id, peaks);
  }
  const peaks = await peaksOf.get(meta.id);
  const loudest = Math.max(...peaks, 0.01);
  return h('span', { class: 'wave', 'aria-hidden': true }, peaks.map((peak) => {
    const bar = h('span');
    bar.style.height = `${4 + 92 * (peak / loudest)}%`;
    return bar;
  }));
}
