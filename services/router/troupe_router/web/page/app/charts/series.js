// A job's numbers over its steps, as columns: loaded once, then grown line by line.
const MAX_POINTS = 4000;

// Columns by name. A loss names its own numbers, so a name may be one that every object of the language has.
export const tableOf = ({ steps, series } = { steps: [], series: {} }) => ({ steps, series: Object.assign(Object.create(null), series) });

export const emptySeries = () => ({ train: tableOf(), eval: tableOf() });

// {a: {b: 1}} -> {"a.b": 1}; true and false are 1 and 0, what else is no number is left out.
export function flatten(line, prefix = "", into = Object.create(null)) {
  for (const [name, value] of Object.entries(line)) {
    const full = prefix ? `${prefix}.${name}` : name;
    if (typeof value === "number" || typeof value === "boolean") into[full] = Number(value);
    else if (value && typeof value === "object" && !Array.isArray(value)) flatten(value, full, into);
  }
  return into;
}

// Adds one line in place. A step that is seen again, as after a resume, replaces all from it on.
export function append(table, line) {
  const index = table.steps.findIndex((step) => step >= line.step);
  if (index >= 0) cut(table, 0, index);
  const values = flatten(line);
  delete values.step;
  const length = table.steps.length;
  for (const name of Object.keys(values)) {
    table.series[name] ??= new Array(length).fill(null);
  }
  for (const [name, column] of Object.entries(table.series)) column.push(values[name] ?? null);
  table.steps.push(line.step);
  if (table.steps.length > MAX_POINTS) cut(table, MAX_POINTS / 4, undefined);
}

function cut(table, from, to) {
  table.steps = table.steps.slice(from, to);
  for (const name of Object.keys(table.series)) table.series[name] = table.series[name].slice(from, to);
}

// Names of the columns that are one of `wanted` or start with one of them and a dot, in order of name.
export function columns(table, wanted) {
  const names = Object.keys(table.series).filter((name) => wanted.some((prefix) => name === prefix || name.startsWith(`${prefix}.`)));
  const place = (name) => wanted.findIndex((prefix) => name === prefix || name.startsWith(`${prefix}.`));
  return names.sort((a, b) => place(a) - place(b) || a.localeCompare(b));
}

export const last = (table, name) => (table.series[name] || []).findLast((value) => value !== null && value !== undefined) ?? null;
export const first = (table, name) => (table.series[name] || []).find((value) => value !== null && value !== undefined) ?? null;
