// The episodes of a job: filters, which live in the address, and a page of rows.
import { Button, Link, NativeSelect, NumberInput, Table, useDebouncedValue, useLocation, useSearch } from "../../vendor/ui.js";
import { jobPath, withQuery } from "../api.js";
import { isFinished } from "../events.js";
import { duration, number, signed } from "../format.js";
import { html } from "../html.js";
import { Empty, Fault, Loaded, More, Tag } from "../parts.js";
import { useList } from "../resource.js";
import { agentClass } from "../theme.js";

const NAMES = ["kind", "step", "agent", "failure", "min_reward", "max_reward", "task_id", "order"];
const KINDS = [{ value: "", label: "Training and evaluation" }, { value: "train", label: "Training" }, { value: "eval", label: "Evaluation" }];
const OUTCOMES = [
  { value: "", label: "Any outcome" }, { value: "none", label: "Solved" }, { value: "any", label: "Any failure" },
  { value: "unsolved", label: "Not solved" }, { value: "truncated", label: "Cut off" }, { value: "dropped", label: "Dropped" },
];
const ORDERS = [
  { value: "newest", label: "Newest first" }, { value: "oldest", label: "Oldest first" },
  { value: "reward_desc", label: "Highest reward first" }, { value: "reward_asc", label: "Lowest reward first" },
];

export function Episodes({ job }) {
  const [, go] = useLocation();
  const search = useSearch();
  const chosen = Object.fromEntries(NAMES.map((name) => [name, new URLSearchParams(search).get(name) || ""]));
  const [settled] = useDebouncedValue(search, 250);
  const address = `/jobs/${encodeURIComponent(job.job_id)}/episodes`;
  const set = (name, value) => go(withQuery(address, { ...chosen, [name]: value }), { replace: true });
  const query = Object.fromEntries(NAMES.map((name) => [name, new URLSearchParams(settled).get(name) || ""]));
  const list = useList(jobPath(job.job_id, "/episodes"), query, { everyMs: isFinished(job.state) ? 0 : 4000 });
  const agents = Object.keys(job.spec.agents);
  return html`<div class="filters" role="search" aria-label="Filter episodes">
      <${NativeSelect} label="Kind" data=${KINDS} value=${chosen.kind} onChange=${(event) => set("kind", event.currentTarget.value)} />
      <${NumberInput} label="Step" placeholder="any" min=${0} max=${job.steps} allowDecimal=${false} value=${chosen.step === "" ? "" : Number(chosen.step)} onChange=${(value) => set("step", value)} className="narrow" />
      <${NativeSelect} label="Outcome" data=${OUTCOMES} value=${chosen.failure} onChange=${(event) => set("failure", event.currentTarget.value)} />
      <${NativeSelect} label="Reward of" data=${[{ value: "", label: "All agents" }, ...agents]} value=${chosen.agent} onChange=${(event) => set("agent", event.currentTarget.value)} />
      <${NumberInput} label="at least" placeholder="–" step=${0.1} decimalScale=${3} value=${chosen.min_reward === "" ? "" : Number(chosen.min_reward)} onChange=${(value) => set("min_reward", value)} className="narrow" />
      <${NumberInput} label="at most" placeholder="–" step=${0.1} decimalScale=${3} value=${chosen.max_reward === "" ? "" : Number(chosen.max_reward)} onChange=${(value) => set("max_reward", value)} className="narrow" />
      <${NativeSelect} label="Order" data=${ORDERS} value=${chosen.order || "newest"} onChange=${(event) => set("order", event.currentTarget.value)} />
      ${search && html`<${Button} variant="subtle" size="sm" onClick=${() => go(address, { replace: true })}>Clear<//>`}
    </div>
    ${chosen.task_id && html`<p class="faint">Only task <code>${chosen.task_id}</code></p>`}
    ${list.error && list.data && html`<${Fault} error=${list.error} retry=${list.reload} />`}
    <${Loaded} resource=${list} what="Loading episodes">${(data) => html`<${Rows} job=${job} page=${data} agents=${agents} /><${More} list=${list}>Show more<//>`}<//>`;
}

function Rows({ job, page, agents }) {
  const rows = page.episodes;
  if (!rows.length) return html`<${Empty} title="No episode fits">Widen the filters, or wait for the next step.<//>`;
  return html`<p class="count" role="status">${number(page.total)} ${page.total === 1 ? "episode" : "episodes"}${page.is_complete === false ? ", still counting" : ""}</p>
    <div class="table-box"><${Table} className="stacking episodes" highlightOnHover verticalSpacing="xs"><${Table.Thead}><${Table.Tr}>
      <${Table.Th}>Task<//><${Table.Th}>Round<//><${Table.Th}>Outcome<//><${Table.Th}>Return<//><${Table.Th}>Mean reward<//><${Table.Th}>Turns<//><${Table.Th}>Candidates<//><${Table.Th}>Tokens<//><${Table.Th}>Time<//><//><//>
      <${Table.Tbody}>${rows.map((row) => html`<${Row} key=${row.id} job=${job} row=${row} agents=${agents} />`)}<//><//></div>`;
}

function Row({ job, row, agents }) {
  const [, go] = useLocation();
  const href = `/jobs/${encodeURIComponent(job.job_id)}/episodes/${encodeURIComponent(row.id)}`;
  return html`<${Table.Tr} className="job-row" onClick=${(event) => event.target.closest("a") || go(href)}>
    <${Table.Td}><${Link} href=${href} className="job-name">${row.task_id}<//><//>
    <${Table.Td} data-label="Round">${row.kind === "eval" ? "evaluation" : "step"} ${row.step}<//>
    <${Table.Td} data-label="Outcome"><${Outcome} row=${row} /><//>
    <${Table.Td} data-label="Return">${number(row.team_return)}<//>
    <${Table.Td} data-label="Mean reward"><div class="agent-means">${Object.entries(row.agents).map(([name, rewards]) => html`<span key=${name} class=${agentClass(name, agents)}><i class="swatch"></i>${name} ${signed(rewards.reward_mean)}</span>`)}</div><//>
    <${Table.Td} data-label="Turns">${row.num_turns}<//>
    <${Table.Td} data-label="Candidates">${number(row.num_candidates)}<//>
    <${Table.Td} data-label="Tokens">${number(row.num_tokens)}<//>
    <${Table.Td} data-label="Time">${duration(row.wall_s)}<//>
  <//>`;
}

export function Outcome({ row }) {
  if (row.failure === "dropped" || row.dropped_reason) return html`<${Tag} color="orange" hint=${row.dropped_reason}>dropped<//>`;
  if (row.is_success) return html`<${Tag} color="teal">solved<//>`;
  return html`<${Tag} color="red">${row.failure === "truncated" ? "cut off" : "not solved"}<//>`;
}
