// What the router says of the spec as it stands: its faults, or what the job would cost.
import { Button, IconCircleCheck, IconCircleX, IconRocket, Loader } from "../../vendor/ui.js";
import { duration, number, plural } from "../format.js";
import { html } from "../html.js";
import { Fault, Panel } from "../parts.js";

export function PlanPanel({ plan, error, isBusy, isSubmitting, submitError, onSubmit, maySubmit }) {
  const isValid = Boolean(plan) && !error;
  return html`<${Panel} className="plan" title="Plan" aside=${isBusy ? html`<span role="status" aria-label="Checking"><${Loader} size="xs" /></span>` : null}>
    <div role="status" aria-live="polite">${error ? html`<${Faults} error=${error} />` : isValid ? html`<p class="verdict good"><${IconCircleCheck} size=${16} />This job can run.</p>` : html`<p class="verdict faint">Checking…</p>`}</div>
    ${isValid && html`<${Figures} plan=${plan} />`}
    ${submitError && html`<${Fault} error=${submitError} title="The job was not taken" />`}
    <${Button} fullWidth leftSection=${html`<${IconRocket} size=${16} />`} disabled=${!isValid || isBusy || !maySubmit} loading=${isSubmitting} onClick=${onSubmit}>Start the job<//>
    ${!maySubmit && html`<p class="faint small">Your key may read only.</p>`}
  <//>`;
}

function Faults({ error }) {
  const errors = error.errors?.length ? error.errors : [{ pointer: "", message: error.message }];
  return html`<p class="verdict bad"><${IconCircleX} size=${16} />${plural(errors.length, "fault")}</p>
    <ul class="fault-list">${errors.map((fault, i) => html`<li key=${i}><code>${fault.pointer || "the spec"}</code><span>${fault.message}</span></li>`)}</ul>`;
}

function Figures({ plan }) {
  const estimate = plan.estimate || {};
  const checks = plan.checks || [];
  const facts = [
    ["Processes", plan.processes?.length],
    ["Rollout replicas", plan.replicas === undefined ? undefined : `${plan.replicas}${plan.quota?.max_replicas ? ` of ${plan.quota.max_replicas}, ${plan.quota.in_use} in use` : ""}`],
    ["Episodes a step", plan.step?.tickets],
    ["Candidates a step, at most", plan.step?.candidates_at_most],
    ["Tokens, at most", estimate.tokens_at_most],
    ["Time, as in the last job of this kind", estimate.wall_s ? duration(estimate.wall_s) : undefined],
    ["Replica hours", estimate.replica_hours],
  ].filter(([, value]) => value !== undefined && value !== null);
  return html`<dl class="facts">${facts.map(([name, value]) => [html`<dt key=${`${name}-name`}>${name}</dt>`, html`<dd key=${name}>${typeof value === "number" ? number(value) : value}</dd>`])}</dl>
    ${checks.length > 0 && html`<ul class="checks">${checks.map((check) => html`<li key=${check.name} class=${check.ok ? "good" : "bad"}>${check.ok ? html`<${IconCircleCheck} size=${14} />` : html`<${IconCircleX} size=${14} />`}<span>${check.name}${check.ok ? "" : `: ${check.detail}`}</span></li>`)}</ul>`}`;
}
