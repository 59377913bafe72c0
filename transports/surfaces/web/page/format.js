// Formatting of sizes, times and kinds of files as text.

const UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB'];

export function size(bytes) {
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  if (unit === 0) return plural(bytes, 'byte');
  return `${value.toPrecision(value < 100 ? 2 : 3)} ${UNITS[unit]}`;
}

/** A readable size, followed by the number of bytes unless the size is in bytes. */
export function exactSize(bytes) {
  return bytes < 1000 ? size(bytes) : `${size(bytes)} (${bytes.toLocaleString()} bytes)`;
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Made once: a formatter takes longer to make than a card.
const TIME = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit', second: '2-digit' });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium' });

/** The time of day; with the date unless it is today. */
export function moment(text) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return 'at an unknown time';
  const time = TIME.format(date).replaceAll(' ', '\u00a0'); // “PM” alone on a line would be lost
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${DAY.format(date)}, ${time}`;
}

export function plural(count, singular, many = `${singular}s`) {
  return `${count.toLocaleString()} ${count === 1 ? singular : many}`;
}

/** A short label for the kind of a file: its extension, or the end of its MIME type. */
export function label(meta) {
  const extension = /\.([A-Za-z0-9]{1,5})$/.exec(meta.filename)?.[1];
  const subtype = meta.mime_type.split('/').at(-1).split(/[.+-]/).at(-1).slice(0, 8);
  return (extension ?? (subtype || 'file')).toUpperCase();
}
