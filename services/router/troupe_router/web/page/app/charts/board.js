// All charts of a job, in groups. New columns make React work; new values only redraw canvases.
import { Tooltip } from "../../vendor/ui.js";
import { words } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Empty, Fault, Panel, Waiting } from "../parts.js";
import { formatOf, grouped, otherColumns, panelColumns } from "./panels.js";
import { Plot } from "./plot.js";
import { useTicks } from "../job/ticks.js";
import { last } from "./series.js";

export function Board({ feed, agents }) {
  const [, setShape] = useState("");
  useEffect(() => {
    const look = () => setShape(`${feed.isLoaded} ${feed.error?.message} ${shapeOf(feed.tables)}`);
    look();
    return feed.subscribe(look);
  }, [feed]);
  if (feed.error) return html`<${Fault} error=${feed.error} retry=${() => feed.load()} title="The charts could not be loaded" />`;
  if (!feed.tables.train.steps.length && !feed.tables.eval.steps.length) {
    return feed.isLoaded ? html`<${Empty} title="No step has ended">${feed.link === "over" ? "The job ended before its first step did." : "Charts appear with the first one."}<//>` : html`<${Waiting} what="Loading the charts" />`;
  }
  return html`${grouped(feed.panels).map((group) => html`<section key=${group.title} class="chart-group" aria-label=${group.title}><h2>${group.title}</h2>
    <div class="charts">${group.panels.map((panel) => html`<${ChartPanel} key=${panel.id} panel=${panel} feed=${feed} agents=${agents} />`)}</div></section>`)}<${OtherNumbers} feed=${feed} />`;
}

// The newest value of every number that no chart draws.
function OtherNumbers({ feed }) {
  useTicks(feed);
  const others = otherColumns(feed.panels, feed.fields, feed.tables);
  if (!others.length) return null;
  return html`<section class="chart-group" aria-label="Other numbers"><h2>Other numbers</h2><dl class="other-numbers">
    ${others.map(({ table, name, field }) => html`<div key=${`${table}.${name}`} data-metric=${`${table}.${name}`}>
      <dt><${Tooltip} label=${field?.description || "A number of the job's loss."} multiline maw=${300} openDelay=${200}><span>${table === "eval" ? "evaluation " : ""}${words(name.replaceAll(".", " · "))}</span><//></dt>
      <dd>${formatOf(field?.unit)(last(feed.tables[table], name))}</dd></div>`)}</dl></section>`;
}

const shapeOf = ({ train, eval: held }) => [train, held].map((table) => `${Object.keys(table.series).length}/${table.steps.length > 0}`).join();

function ChartPanel({ panel, feed, agents }) {
  const drawn = panelColumns(panel, feed.tables, agents);
  if (panel.is_optional && !drawn.length) return null;
  const format = formatOf(panel.unit);
  const read = () => joined(drawn, feed.tables);
  const title = html`<${Tooltip} label=${panel.hint} multiline maw=${300} openDelay=${200}><span>${panel.title}</span><//>`;
  const latest = drawn.length === 1 ? format(last(feed.tables[drawn[0].table], drawn[0].name)) : null;
  return html`<${Panel} title=${title} heading="h3" className=${panel.is_wide ? "chart wide" : "chart"} data-chart=${panel.id}>
    ${drawn.length
      ? html`<${Plot} columns=${drawn} read=${read} feed=${feed} format=${format} range=${panel.range} isStacked=${panel.is_stacked} label=${`${panel.title}: ${drawn.map((column) => column.label).join(", ")}${latest ? `, now ${latest}` : ""}`} />`
      : html`<div class="no-data">${panel.empty_text}</div>`}
  <//>`;
}

// Columns of both tables over one axis of steps.
function joined(drawn, tables) {
  const froms = new Set(drawn.map((column) => column.table));
  if (froms.size <= 1) {
    const table = tables[[...froms][0] || "train"];
    return { x: table.steps, ys: drawn.map((column) => table.series[column.name]) };
  }
  const x = [...new Set([...froms].flatMap((from) => tables[from].steps))].sort((a, b) => a - b);
  const place = new Map(x.map((step, index) => [step, index]));
  const ys = drawn.map((column) => {
    const table = tables[column.table];
    const values = new Array(x.length).fill(null);
    table.steps.forEach((step, i) => (values[place.get(step)] = table.series[column.name][i]));
    return values;
  });
  return { x, ys };
}
