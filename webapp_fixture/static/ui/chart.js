// The chart card: a live preview on the page's canvas, and the export.

import { DARK, LIGHT, chartData, drawChart } from '../lib/chart.js';
import { $, attempt, save } from './dom.js';

const START = 'Month,Online,Shop\nJan,120,80\nFeb,150,95\nMar,190,130\nApr,170,140\nMay,220,155\nJun,260,160\n';

export function startChart(run) {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const canvas = $('chart-canvas');

  function draw() {
    const scale = Math.max(1, window.devicePixelRatio);
    const width = canvas.clientWidth || 800;
    const height = Math.round((width * 9) / 16);
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    const palette = dark.matches ? DARK : LIGHT;
    try {
      const data = chartData($('chart-csv').value);
      drawChart(context, data, { type: $('chart-type').value, width, height, title: $('chart-title').value, palette });
      $('chart-hint').textContent = `${data.labels.length} points, ${data.series.length} series`;
    } catch (error) {
      $('chart-hint').textContent = error.message;
    }
  }

  $('chart-csv').value = START;
  for (const id of ['chart-csv', 'chart-title', 'chart-type']) $(id).addEventListener('input', draw);
  dark.addEventListener('change', draw);
  let width = 0;
  new ResizeObserver(() => {
    if (canvas.clientWidth === width) return;
    width = canvas.clientWidth;
    draw();
  }).observe(canvas.parentElement); // and at once, for the first time

  $('chart-export').addEventListener('click', attempt(async () => {
    const [csv, title, type, format] = ['csv', 'title', 'type', 'format'].map((name) => $(`chart-${name}`).value);
    const { image } = await run('chart.render', { csv, title, type, format });
    save(image.content, image.filename);
  }));
}
