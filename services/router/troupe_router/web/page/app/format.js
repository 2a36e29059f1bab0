// Numbers, times and names as people read them.
export const dash = "–";

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return dash;
  const size = Math.abs(value);
  if (size < 1e-12) return "0";
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en");
  if (size < 1e-3) return value.toExponential(1);
  return trimmed(value.toFixed(size >= 100 ? 1 : Math.min(digits, size >= 10 ? 2 : 3)));
}

const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

export const signed = (value) => (value === null || value === undefined ? dash : `${value > 0 ? "+" : value < 0 ? "−" : ""}${number(Math.abs(value), 2)}`);

export const percent = (value, digits = 0) => (value === null || value === undefined ? dash : `${(100 * value).toFixed(digits)} %`);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return dash;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${trimmed(seconds.toFixed(seconds < 10 ? 1 : 0))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

// Seconds that a job has run, or null: where it is queued or paused its clock stands still.
export function ranFor({ state, started_at, ended_at }, now = Date.now() / 1000) {
  const end = ended_at || (["launching", "running", "pausing", "cancelling"].includes(state) ? now : null);
  return started_at && end ? end - started_at : null;
}

export function ago(at, now = Date.now() / 1000) {
  if (!at) return dash;
  const seconds = Math.max(0, now - at);
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

export const clock = (at) => (at ? new Date(at * 1000).toLocaleTimeString("en-GB") : dash);

export const moment = (at) => (at ? new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : dash);

export function bytes(size) {
  if (size === null || size === undefined) return dash;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = size;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export const words = (name) => name.replaceAll("_", " ");

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

export const shortDigest = (digest) => (digest ? digest.slice(0, 10) : dash);
