// SPDX-License-Identifier: MIT
// Draws the charts of the page, in the colours that the reader's system asks for.
'use strict';
(() => {
  const charts = JSON.parse(document.getElementById('charts').textContent);
  const dark = matchMedia('(prefers-color-scheme: dark)');
  let views = [];

  function theme(isDark) {
    const ink = isDark ? '#e6e9ed' : '#1c2128';
    const soft = isDark ? '#9aa4af' : '#59636e';
    const line = isDark ? '#373e47' : '#dfe3e8';
    const ground = isDark ? '#1c2128' : '#f7f8fa';
    const series = isDark
      ? ['#6cb6ff', '#ff9e57', '#57d08c', '#e47cc4', '#c9b458', '#b194f5', '#f47067', '#77808a']
      : ['#1f6fb2', '#d9660a', '#1e8a4c', '#b0378e', '#857100', '#6b4fc0', '#c0392b', '#9aa4af'];
    const text = {labelColor: soft, titleColor: ink, labelFontSize: 11, titleFontSize: 12,
                  titleFontWeight: 600};
    return {
      background: null, font: 'system-ui, "DejaVu Sans", sans-serif',
      view: {stroke: line},
      axis: {...text, gridColor: line, domainColor: soft, tickColor: soft, labelOverlap: 'greedy',
             labelSeparation: 4, labelFlush: false, titlePadding: 8},
      legend: {...text, symbolSize: 90, labelLimit: 260},
      header: {...text},
      title: {color: ink, fontSize: 13, anchor: 'start'},
      mark: {color: series[0]}, bar: {color: series[0]}, line: {color: series[0], strokeWidth: 2},
      area: {color: series[0]}, point: {color: series[0]}, tick: {color: ink},
      rule: {color: soft}, text: {color: ink, fontSize: 11},
      range: {
        category: series,
        diverging: isDark ? ['#4cc38a', '#2a5a45', '#262b33', '#7a3f22', '#ff8f52']
                          : ['#0f7a45', '#9fd4b6', '#f4f4f2', '#f4b893', '#b8430c'],
        ramp: isDark ? ['#262b33', '#6cb6ff'] : ['#eef3f8', '#0b4f8a'],
        heatmap: isDark ? ['#262b33', '#6cb6ff'] : ['#eef3f8', '#0b4f8a'],
      },
      style: {soft: {fill: soft}, ground: {fill: ground},
              'group-title': {fill: ink}},
    };
  }

  async function drawOne(chart, config) {
    const place = document.getElementById('chart-' + chart.id);
    place.textContent = '';
    const spec = vega.parse(vegaLite.compile(chart.spec, {config}).spec);
    const view = new vega.View(spec, {renderer: 'svg', container: place});
    views.push(view);
    await view.runAsync();
  }

  async function draw() {
    delete document.documentElement.dataset.drawnMs;
    for (const view of views) view.finalize();
    views = [];
    const config = theme(dark.matches);
    for (const chart of charts) {
      try {
        await drawOne(chart, config);
      } catch (error) {
        console.error(chart.id, error);
        const place = document.getElementById('chart-' + chart.id);
        place.className = 'failed';
        place.textContent = 'This chart could not be drawn: ' + error;
      }
    }
    document.documentElement.dataset.drawnMs = Math.round(performance.now());
  }

  dark.addEventListener('change', draw);
  draw();
})();
