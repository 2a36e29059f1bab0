// Which numbers are drawn together, and under which words: as the router declares them (troupe/runtime/step_report).
import { bytes, duration, number, percent } from "../format.js";
import { columns } from "./series.js";

const FORMATS = { share: (value) => percent(value, 0), seconds: duration, bytes };
export const formatOf = (unit) => FORMATS[unit] || number;

// Panels in their groups: [{title, panels}].
export function grouped(panels) {
  const groups = new Map();
  for (const panel of panels) groups.set(panel.group, [...(groups.get(panel.group) || []), panel]);
  return [...groups].map(([title, list]) => ({ title, panels: list }));
}

// The columns of a panel that there are: [{table, name, label, is_dotted}], agents and phases in their own order.
export function panelColumns(panel, tables, agents) {
  const perPolicy = panel.curves.find((curve) => curve.by_policy);
  const several = perPolicy ? policyColumns(perPolicy.name, tables.train) : [];
  if (several.length > 1) return several;
  const shown = panel.curves.flatMap(({ table, name: wanted, label, is_dotted }) =>
    columns(tables[table], [wanted]).map((name) => ({
      table, name, is_dotted,
      label: name.includes(".") ? name.slice(name.indexOf(".") + 1).replaceAll(".", " · ").replaceAll("_", " ") : label || name.replaceAll("_", " "),
    })),
  );
  const order = panel.id === "reward" ? agents : panel.keys;
  if (!order?.length) return shown;
  const place = (column) => order.indexOf(column.label) + 1 || order.length;
  return shown.sort((a, b) => place(a) - place(b));
}

// Columns that no panel draws, with what is declared of them: [{table, name, field}]. Those of one policy are left out.
export function otherColumns(panels, fields, tables) {
  const drawn = panels.flatMap((panel) => panel.curves);
  const isOf = (name, declared) => name === declared.name || name.startsWith(`${declared.name}.`);
  return Object.entries(tables).flatMap(([table, { series }]) =>
    Object.keys(series)
      .filter((name) => !name.startsWith("by_policy.") && !drawn.some((declared) => declared.table === table && isOf(name, declared)))
      .sort()
      .map((name) => ({ table, name, field: fields.find((declared) => declared.table === table && isOf(name, declared)) })),
  );
}

// A number of each policy, for jobs that train several.
const policyColumns = (name, table) =>
  Object.keys(table.series).flatMap((full) => {
    const [, policy] = full.match(/^by_policy\.(.+)\.(?:[^.]+)$/) || [];
    return policy && full.endsWith(`.${name}`) ? [{ table: "train", name: full, label: policy, is_dotted: false }] : [];
  });
