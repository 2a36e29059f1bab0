// All jobs, newest first.
import { Button, Link, Progress, SegmentedControl, Table, useDocumentTitle, useLocation } from "../../vendor/ui.js";
import { jobPath, withQuery } from "../api.js";
import { Spark } from "../charts/spark.js";
import { ago, duration, percent, ranFor, words } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { useList, useResource } from "../resource.js";
import { Empty, Fault, Loaded, More, PageHead, StateBadge } from "../parts.js";

const ACTIVE = ["queued", "launching", "running", "pausing", "paused", "cancelling"];
const DONE = ["succeeded", "failed", "cancelled"];
const CHOICES = [
  { value: "all", label: "All" },
  { value: "active", label: "Active" },
  { value: "done", label: "Finished" },
];

export function JobsPage() {
  useDocumentTitle("Jobs · Troupe");
  const [choice, setChoice] = useState("all");
  const states = { active: ACTIVE, done: DONE }[choice];
  const list = useList("/v1/jobs", { state: states }, { everyMs: 3000 });
  return html`<${PageHead} title="Jobs" actions=${html`<${SegmentedControl} size="xs" data=${CHOICES} value=${choice} onChange=${setChoice} aria-label="Which jobs" />`} />
    ${list.error && list.data && html`<${Fault} error=${list.error} retry=${list.reload} title="This list may be old" />`}
    <${Loaded} resource=${list} what="Loading jobs">${(data) => html`<${JobTable} page=${data} states=${states} /><${More} list=${list}>Show older jobs<//>`}<//>`;
}

function JobTable({ page, states }) {
  const jobs = page.jobs.filter((job) => !states || states.includes(job.state)); // those of the choice before show until the new ones come
  if (!jobs.length) {
    return html`<${Empty} title="No jobs here yet" action=${html`<${Button} component=${Link} href="/new" variant="light">Make the first<//>`}>A job trains a team of agents on a task, step by step, and shows here as it goes.<//>`;
  }
  return html`<div class="table-box"><${Table} className="jobs" highlightOnHover verticalSpacing="sm">
    <${Table.Thead}><${Table.Tr}>${["Job", "State", "Task", "Progress", "Success", "Started", "Ran for"].map((name) => html`<${Table.Th} key=${name}>${name}<//>`)}<//><//>
    <${Table.Tbody}>${jobs.map((job, index) => html`<${JobRow} key=${job.job_id} job=${job} hasSpark=${index < 20} />`)}<//>
  <//></div>`;
}

function JobRow({ job, hasSpark }) {
  const [, go] = useLocation();
  const href = `/jobs/${encodeURIComponent(job.job_id)}`;
  const ran = ranFor(job);
  return html`<${Table.Tr} className="job-row" onClick=${(event) => event.target.closest("a") || go(href)}>
    <${Table.Td}><${Link} href=${href} className="job-name">${job.job_id}<//><span class="sub">${words(job.spec.algorithm.kind)} · ${Object.keys(job.spec.agents).length} agents</span><//>
    <${Table.Td} data-label="State"><${StateBadge} state=${job.state} size="sm" />${job.queue_position ? html`<span class="sub">number ${job.queue_position} in the queue</span>` : null}<//>
    <${Table.Td} data-label="Task">${words(job.spec.task.name)}<//>
    <${Table.Td} data-label="Progress"><div class="progress"><${Progress} value=${job.steps ? (100 * job.step) / job.steps : 100} size="sm" aria-label=${`Step ${job.step} of ${job.steps}`} /><span>${job.step} / ${job.steps}</span></div><//>
    <${Table.Td} data-label="Success">${hasSpark ? html`<${Success} job=${job} />` : html`<span class="faint">–</span>`}<//>
    <${Table.Td} data-label="Started">${ago(job.started_at)}<//>
    <${Table.Td} data-label="Ran for">${ran !== null ? duration(ran) : html`<span class="faint">–</span>`}<//>
  <//>`;
}

// Held-out success where there is any: in training rounds the best of K candidates counts.
function Success({ job }) {
  const path = withQuery(jobPath(job.job_id, "/metrics"), { names: ["success", "success_rate"], max_points: 60 });
  const { data, reload } = useResource(path);
  useEffect(() => {
    if (job.step > 0) reload();
  }, [job.step, job.state]);
  const heldOut = measured(data?.eval?.series?.success);
  const values = heldOut.length ? heldOut : measured(data?.train?.series?.success_rate);
  if (!values.length) return html`<span class="faint">–</span>`;
  const title = heldOut.length ? "On held-out tasks" : "In training rounds: the best of K candidates at each turn";
  return html`<div class="spark-cell" title=${title}><${Spark} values=${values} /><span>${percent(values.at(-1))}${heldOut.length ? "" : html`<span class="sub">in training</span>`}</span></div>`;
}

function measured(values) {
  return (values || []).filter((value) => value !== null);
}
