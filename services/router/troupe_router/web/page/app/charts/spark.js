// A line as small as a word.
import { html } from "../html.js";

const WIDTH = 72;
const HEIGHT = 22;

export function Spark({ values }) {
  const most = Math.max(1e-9, ...values);
  const step = values.length > 1 ? WIDTH / (values.length - 1) : 0;
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`);
  const line = values.length > 1 ? points.join(" ") : `0,${HEIGHT / 2} ${WIDTH},${HEIGHT / 2}`;
  return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true">
    <polyline points=${`0,${HEIGHT} ${line} ${WIDTH},${HEIGHT}`} class="spark-area" /><polyline points=${line} class="spark-line" /></svg>`;
}
