// One uPlot chart that follows columns which grow in place. Drawing is at most once a frame.
import { html, useEffect, useRef, useState } from "../html.js";
import { seriesColor } from "../theme.js";
import { useComputedColorScheme } from "../../vendor/ui.js";

const HEIGHT = 168;
let library;
const loadLibrary = () => (library ??= import("../../vendor/chart.js").then((module) => module.uPlot));

// columns: [{name, label, table, is_dotted}]; read(): {x, ys} as they are now; feed tells of changes.
export function Plot({ columns, read, feed, format, range, isStacked, label }) {
  const box = useRef(null);
  const scheme = useComputedColorScheme("light");
  const [error, setError] = useState(null);
  const names = columns.map((column) => `${column.table}.${column.name}`).join("|");
  useEffect(() => {
    let chart;
    let isGone = false;
    let stop = () => {};
    loadLibrary().then(
      (uPlot) => {
        if (!isGone) [chart, stop] = mount(uPlot, box.current, { columns, read, feed, format, range, isStacked, isDark: scheme === "dark" });
      },
      () => setError("The chart library could not be loaded; reload the page."),
    );
    return () => {
      isGone = true;
      stop();
      chart?.destroy();
    };
  }, [names, scheme, isStacked]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${label}>${error}</div>`;
}

function mount(uPlot, box, { columns, read, feed, format, range, isStacked, isDark }) {
  const ink = isDark ? "#8d95a5" : "#868e96";
  const grid = { stroke: isDark ? "#262d3a" : "#eef0f3", width: 1 };
  const shownData = () => (isStacked ? stacked(read()) : aligned(read()));
  const options = {
    width: box.clientWidth || 320,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    cursor: { sync: { key: "job" }, points: { size: 6 }, drag: { x: true, y: false } },
    scales: { x: { time: false, range: (_, low, high) => (isStacked ? [low - 0.5, high + 0.5] : [low, high > low ? high : low + 1]) }, y: { range: range || ((_, low, high) => spread(low, high, isStacked)) } },
    axes: [
      { stroke: ink, grid: { show: false }, ticks: { show: false }, size: 26, font: "11px Inter Variable, sans-serif", space: 48, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000] },
      { stroke: ink, grid, ticks: { show: false }, size: 46, font: "11px Inter Variable, sans-serif", space: 36, values: (_, marks) => marks.map((mark) => format(mark)) },
    ],
    series: [
      { label: "step", value: (_, value) => (value === null ? "" : String(value)) },
      ...drawn(columns.map((column, index) => lineOf(uPlot, column, index, { format, isStacked, isDark, read })), isStacked),
    ],
    legend: { live: true, markers: { width: 0, fill: (self, i) => self.series[i].swatch } },
  };
  const chart = new uPlot(options, shownData(), box);
  const stop = keepFresh(chart, box, feed, () => chart.setData(shownData()));
  return [chart, stop];
}

function lineOf(uPlot, column, index, { format, isStacked, isDark, read }) {
  const color = seriesColor(index, isDark);
  const value = (self, shown, seriesIndex, at) => {
    const column = read().ys[index] || [];
    const plain = at === null || at === undefined ? column.findLast((value) => value !== null) : column[at];
    return plain === null || plain === undefined ? "–" : format(plain);
  };
  if (isStacked) {
    return { label: column.label, swatch: color, stroke: color, fill: color, width: 0, value, paths: uPlot.paths.bars({ size: [0.7, 34], align: 0 }), points: { show: false } };
  }
  return {
    label: column.label, swatch: color, stroke: color, width: 1.75, value, spanGaps: true,
    dash: column.is_dotted ? [5, 4] : undefined,
    points: column.is_dotted ? { show: true, size: 6, fill: color } : { show: (self) => self.data[0].length < 3, size: 6 },
    fill: index === 0 && !column.is_dotted ? `${color}14` : undefined,
  };
}

const aligned = ({ x, ys }) => [x, ...ys];

// Bars are drawn one over the other, so the tallest, which holds all others, comes first.
const drawn = (list, isStacked) => (isStacked ? list.toReversed() : list);

function stacked({ x, ys }) {
  const sums = new Array(x.length).fill(0);
  const layers = ys.map((column) => column.map((value, i) => (sums[i] += value || 0)));
  return [x, ...drawn(layers, true)];
}

function spread(low, high, isStacked) {
  if (low === null || high === null) return [0, 1];
  if (isStacked) return [0, high > 0 ? high * 1.05 : 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.12;
  return [low >= 0 && low - margin < 0 ? 0 : low - margin, high + margin];
}

// Redraws at most once a frame, only while the chart is on the screen, and fits its width.
function keepFresh(chart, box, feed, draw) {
  let frame = 0;
  let isSeen = true;
  let isOld = false;
  const ask = () => {
    isOld = true;
    if (isSeen && !frame) frame = requestAnimationFrame(paint);
  };
  const paint = () => {
    frame = 0;
    if (!isOld) return;
    isOld = false;
    draw();
  };
  const eye = new IntersectionObserver(([entry]) => {
    isSeen = entry.isIntersecting;
    if (isSeen && isOld) ask();
  });
  const ruler = new ResizeObserver(() => {
    const width = box.clientWidth;
    if (width && width !== chart.width) chart.setSize({ width, height: HEIGHT });
  });
  eye.observe(box);
  ruler.observe(box);
  const unsubscribe = feed.subscribe(ask);
  return () => {
    unsubscribe();
    eye.disconnect();
    ruler.disconnect();
    cancelAnimationFrame(frame);
  };
}
