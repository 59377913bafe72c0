// Charts from CSV, drawn on any 2D canvas context.

import { AbpError } from '../protocol/errors.js';
import { parseCsv } from './csv.js';

const COLOURS = ['#2f6fdb', '#e07b39', '#2a9d6f', '#b5459a', '#c9a227', '#5b6abf', '#c24a4a', '#3a9fb0'];
export const LIGHT = { paper: '#ffffff', ink: '#1f2430', faint: '#6b7280', grid: '#e3e6ec' };
export const DARK = { paper: '#181b22', ink: '#e8eaf0', faint: '#9aa3b2', grid: '#2d323d' };

/** CSV (labels in the first column, a header line) as {labels, series: [{name, values}]}. */
export function chartData(csv) {
  const [header = [], ...rows] = parseCsv(csv);
  if (header.length < 2 || rows.length < 1) {
    throw new AbpError('INVALID_PARAMS', 'csv needs a header line, a column of labels and at least one column of numbers');
  }
  const number = (row, at, column) => {
    const text = (row[column] ?? '').trim();
    const value = text === '' ? null : Number(text);
    if (Number.isFinite(value) || value === null) return value;
    throw new AbpError('INVALID_PARAMS', `csv line ${at + 2}, column '${header[column]}': '${text}' is not a number`);
  };
  const series = header.slice(1).map((name, at) => ({
    name: name.trim(),
    values: rows.map((row, line) => number(row, line, at + 1)),
  }));
  return { labels: rows.map(([label]) => label.trim()), series };
}

/** Axis bounds and step, round numbers that contain zero. */
function scaleFor(values) {
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const rough = (high - low || 1) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  return { from: Math.floor(low / step) * step, to: Math.ceil((high || 1) / step) * step, step };
}

function drawGrid(context, box, scale, y, palette) {
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  const count = Math.round((scale.to - scale.from) / scale.step);
  for (let at = 0; at <= count; at += 1) {
    const value = scale.from + at * scale.step;
    const line = Math.round(y(value)) + 0.5;
    context.strokeStyle = Math.abs(value) < scale.step / 1e6 ? palette.faint : palette.grid;
    context.beginPath();
    context.moveTo(box.left, line);
    context.lineTo(box.right, line);
    context.stroke();
    context.fillStyle = palette.faint;
    context.fillText(Number(value.toPrecision(10)).toLocaleString('en'), box.left - 8, line);
  }
}

function drawLabels(context, box, labels, palette) {
  const slot = (box.right - box.left) / labels.length;
  const widest = Math.max(...labels.map((label) => context.measureText(label).width)) + 12;
  const every = Math.max(1, Math.ceil(widest / slot));
  context.fillStyle = palette.faint;
  context.textAlign = 'center';
  context.textBaseline = 'top';
  labels.forEach((label, at) => {
    if (at % every === 0) context.fillText(label, box.left + (at + 0.5) * slot, box.bottom + 9);
  });
}

function drawBars(context, box, { labels, series }, y) {
  const slot = (box.right - box.left) / labels.length;
  const width = (slot * 0.72) / series.length;
  series.forEach(({ values }, which) => {
    context.fillStyle = COLOURS[which % COLOURS.length];
    values.forEach((value, at) => {
      if (value === null) return;
      const left = box.left + at * slot + slot * 0.14 + which * width;
      const radius = Math.min(3, width / 4);
      context.beginPath();
      context.roundRect(left, y(value), Math.max(1, width - 1), y(0) - y(value), [radius, radius, 0, 0]);
      context.fill();
    });
  });
}

function drawLines(context, box, { labels, series }, y) {
  const slot = (box.right - box.left) / labels.length;
  context.lineWidth = 2.5;
  context.lineJoin = 'round';
  series.forEach(({ values }, which) => {
    context.strokeStyle = context.fillStyle = COLOURS[which % COLOURS.length];
    context.beginPath();
    let pen = false;
    values.forEach((value, at) => {
      if (value !== null) context[pen ? 'lineTo' : 'moveTo'](box.left + (at + 0.5) * slot, y(value));
      pen = value !== null;
    });
    context.stroke();
    values.forEach((value, at) => {
      if (value === null || slot < 12) return;
      context.beginPath();
      context.arc(box.left + (at + 0.5) * slot, y(value), 3.5, 0, 2 * Math.PI);
      context.fill();
    });
  });
}

function drawLegend(context, series, right, top, palette) {
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  let x = right;
  for (let which = series.length - 1; which >= 0; which -= 1) {
    x -= context.measureText(series[which].name).width + 26;
    context.fillStyle = COLOURS[which % COLOURS.length];
    context.fillRect(x, top - 5, 10, 10);
    context.fillStyle = palette.ink;
    context.fillText(series[which].name, x + 15, top);
  }
}

/** Draw the whole chart, width × height in the context's own units. */
export function drawChart(context, data, { type = 'bar', width, height, title = '', palette = LIGHT }) {
  const font = Math.max(10, Math.min(16, width / 55));
  const family = 'system-ui, sans-serif';
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, width, height);
  context.font = `${font}px ${family}`;
  const scale = scaleFor(data.series.flatMap(({ values }) => values.filter((value) => value !== null)));
  const widest = Math.max(...[scale.from, scale.to].map((value) => context.measureText(value.toLocaleString('en')).width));
  const box = { left: widest + 22, right: width - 14, top: font * (title ? 4.8 : 3), bottom: height - font * 2.4 };
  const y = (value) => box.bottom - ((value - scale.from) / (scale.to - scale.from)) * (box.bottom - box.top);
  context.lineWidth = 1;
  drawGrid(context, box, scale, y, palette);
  drawLabels(context, box, data.labels, palette);
  (type === 'line' ? drawLines : drawBars)(context, box, data, y);
  drawLegend(context, data.series, box.right, font * (title ? 3.5 : 1.4), palette);
  context.font = `600 ${font * 1.25}px ${family}`;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.fillStyle = palette.ink;
  context.fillText(title, 14, font * 1.7, width - 28);
}
