// The head of a job's page: what it is, where it is, what it waits for, what can be done.
import {
  Button, IconHourglass, IconPlayerPause, IconPlayerPlay, IconPlayerStop, IconCopy, Link, Modal, Progress, Text, Group, Alert,
} from "../../vendor/ui.js";
import { jobPath, request } from "../api.js";
import { isFinished } from "../events.js";
import { ago, duration, moment, number, percent, signed, words } from "../format.js";
import { html, useState } from "../html.js";
import { first, last } from "../charts/series.js";
import { BackLink, Fault, PageHead, Stat, StateBadge, Tag } from "../parts.js";
import { may, useSession } from "../session.js";
import { MoreSteps } from "./more_steps.js";
import { useTicks } from "./ticks.js";

export function JobHead({ job, reload }) {
  const { session } = useSession();
  const task = job.spec.task;
  const note = html`<${StateBadge} state=${job.state} /><span>${words(task.name)}</span><span>${words(job.spec.algorithm.kind)}</span>
    <span>${Object.keys(job.spec.agents).join(", ")}</span>${job.started_at && html`<span title=${moment(job.started_at)}>started ${ago(job.started_at)}</span>`}`;
  return html`<${PageHead} title=${job.job_id} note=${note} back=${html`<${BackLink} href="/">Jobs<//>`}
    actions=${may(session, "submit") && html`<${Actions} job=${job} reload=${reload} />`} />
  ${job.state === "failed" && html`<${Alert} color="red" variant="light" title="This job failed" mb="md" className="reason">${job.reason || job.error || "It gave no reason; see its logs."}<//>`}`;
}

function Actions({ job, reload }) {
  const [error, setError] = useState(null);
  const [asked, setAsked] = useState(false);
  const [busy, setBusy] = useState("");
  const [isLonger, setLonger] = useState(false);
  const act = async (verb, body) => {
    setBusy(verb);
    setError(null);
    try {
      await request(jobPath(job.job_id, `/${verb}`), { method: "POST", body });
      await reload();
    } catch (failure) {
      setError(failure);
    }
    setBusy("");
    setAsked(false);
    setLonger(false);
  };
  const button = (verb, label, Icon, props = {}) => html`<${Button} key=${verb} size="xs" variant="default" leftSection=${html`<${Icon} size=${14} />`} loading=${busy === verb} onClick=${() => act(verb)} ...${props}>${label}<//>`;
  const canEnd = !isFinished(job.state) && job.state !== "cancelling";
  return html`<${Group} gap="xs">
    ${["running", "launching", "queued"].includes(job.state) && button("pause", "Pause", IconPlayerPause)}
    ${["paused", "failed", "cancelled"].includes(job.state) && button("resume", "Resume", IconPlayerPlay)}
    ${job.state === "succeeded" && job.step > 0 && button("resume", "More steps", IconPlayerPlay, { onClick: () => setLonger(true) })}
    ${canEnd && button("cancel", "Cancel", IconPlayerStop, { onClick: () => setAsked(true) })}
    <${Button} size="xs" variant="default" component=${Link} href=${`/new?from=${encodeURIComponent(job.job_id)}`} leftSection=${html`<${IconCopy} size=${14} />`}>Use as a start<//>
  <//>
  ${error && html`<div class="action-fault"><${Fault} error=${error} title="That was not done" /></div>`}
  <${Modal} opened=${asked} onClose=${() => setAsked(false)} title="Cancel this job?" centered>
    <${Text} size="sm">Its processes end. Checkpoints stay, and it can be resumed from the last one.<//>
    <${Group} justify="flex-end" mt="lg"><${Button} variant="default" onClick=${() => setAsked(false)}>Keep it<//><${Button} color="red" loading=${busy === "cancel"} onClick=${() => act("cancel")}>Cancel the job<//><//>
  <//>
  <${Modal} opened=${isLonger} onClose=${() => setLonger(false)} title="Train this job on?" centered>
    <${MoreSteps} job=${job} isBusy=${busy === "resume"} onAnswer=${(spec) => (spec ? act("resume", spec) : setLonger(false))} />
  <//>`;
}

export function NowCard({ job, progress, link }) {
  const isOver = isFinished(job.state);
  const value = job.steps ? (100 * job.step) / job.steps : 100;
  const round = progress?.round;
  const roundValue = round && round.num_tickets ? (100 * (round.num_done + round.num_dropped)) / round.num_tickets : null;
  const waiting = progress?.waiting;
  return html`<section class=${`now ${isOver ? "over" : ""}`} aria-label="Now">
    <div class="now-top"><span class="now-steps">Step <strong>${job.step}</strong> of ${job.steps}</span>
      ${progress?.eta_s > 0 && !isOver && html`<span class="faint">about ${duration(progress.eta_s)} left</span>`}
      <span class="now-link">${isOver ? `ran for ${duration((job.ended_at || 0) - (job.started_at || job.created_at))}` : html`<${LinkState} link=${link} />`}</span></div>
    <${Progress} value=${value} size="md" color=${{ succeeded: "teal", failed: "red", cancelled: "gray" }[job.state]} aria-label=${`Step ${job.step} of ${job.steps}`} />
    ${waiting && !isOver && html`<p class=${waiting.is_overdue ? "waits overdue" : "waits"} aria-live="polite"><${IconHourglass} size=${15} /><span data-waits>${waiting.sentence}</span>
      ${waiting.is_overdue ? html`<${Tag} color="orange">overdue, ${duration(waiting.for_s)}<//>` : waiting.for_s > 5 && html`<span class="faint">for ${duration(waiting.for_s)}</span>`}</p>`}
    ${roundValue !== null && !isOver && waiting?.phase === "play" && html`<div class="round"><${Progress} value=${roundValue} size="xs" color="gray" aria-label="Episodes of this round" /><span>${number(round.num_done)} / ${number(round.num_tickets)} episodes</span></div>`}
  </section>`;
}

function LinkState({ link }) {
  const words = { live: "Live", lost: "Connection lost, trying again", loading: "Connecting", over: "Over" }[link];
  return html`<span class=${`link link-${link}`} role="status"><span class=${link === "live" ? "dot dot-live" : "dot"}></span>${words}</span>`;
}

export function Stats({ feed }) {
  useTicks(feed);
  const { train, eval: held } = feed.tables;
  if (!train.steps.length && !held.steps.length) return null;
  const success = last(held, "success");
  const base = first(held, "success");
  const gain = held.steps.length > 1 && success !== null ? `${signed(Math.round(100 * (success - base)))} points since step ${held.steps[0]}` : "held-out tasks";
  const wall = last(train, "wall_s");
  return html`<div class="stats">
    <${Stat} label="Success, evaluated" value=${percent(success)} note=${gain} tone=${success > base ? "good" : ""} />
    <${Stat} label="Success, training" value=${percent(last(train, "success_rate"))} note=${`reward ${number(last(train, "reward_mean"))}`} />
    <${Stat} label="Entropy" value=${number(last(train, "entropy"))} note=${`KL ${number(last(train, "kl_rollout"))}`} />
    <${Stat} label="Tokens per second" value=${number(last(train, "tokens_per_s"))} note=${`${number(last(train, "num_tokens"))} in the last step`} />
    <${Stat} label="Step time" value=${duration(wall)} note=${stepNote(train)} />
  </div>`;
}

// A round's tail of a second or more says more than how much of the step was work.
function stepNote(train) {
  const tail = last(train, "tail_s");
  if (tail >= 1) return `waited ${duration(tail)} for ${number(last(train, "tail_draws"))} of ${number(last(train, "num_draws"))} draws`;
  return last(train, "busy_ratio") === null ? "" : `${percent(last(train, "busy_ratio"))} of it at work`;
}
