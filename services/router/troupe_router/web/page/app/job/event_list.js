// What happened, newest first.
import { SegmentedControl } from "../../vendor/ui.js";
import { clock, duration, number, percent, plural } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { Empty, Waiting } from "../parts.js";

const LOUD = [
  "phase.overdue", "parity.alarm", "component.restarted", "component.condition", "job.warning", "job.interrupted", "learning.flat",
  "learning.sparse", "learning.truncated", "reward.suspect", "program.failing",
  "replica.left", "weights.refused", "checkpoint.failed", "recording.failed", "records.lost", "tracker.failed", "disk.low", "disk.resolved", "redis.low", "redis.resolved",
];
const CHOICES = [{ value: "all", label: "All" }, { value: "steps", label: "Steps" }, { value: "warnings", label: "Warnings" }];
const SHOWN = 300;

export function EventList({ feed }) {
  const [choice, setChoice] = useState("all");
  const [, tick] = useState(0);
  useEffect(() => {
    let timer = 0;
    const stop = feed.subscribe(() => {
      timer ||= setTimeout(() => {
        timer = 0;
        tick((n) => n + 1);
      }, 200);
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [feed]);
  const wanted = { all: () => true, steps: (event) => /^(step|eval|round|job)\./.test(event.type), warnings: (event) => LOUD.includes(event.type) }[choice];
  const events = feed.events.filter(wanted).slice(-SHOWN).toReversed();
  if (!feed.isLoaded && !feed.error) return html`<${Waiting} what="Loading events" />`;
  return html`<div class="filters"><${SegmentedControl} size="xs" data=${CHOICES} value=${choice} onChange=${setChoice} aria-label="Which events" /></div>
    ${events.length ? html`<ol class="events">${events.map((event) => html`<li key=${event.id} class=${LOUD.includes(event.type) ? "loud" : ""}>
      <time>${clock(event.occurred_at)}</time><span class="event-type">${event.type}</span><span class="event-text">${tell(event)}</span></li>`)}</ol>` : html`<${Empty} title="Nothing of this kind happened" />`}`;
}

// An event in words; what has no words of its own shows its data.
function tell({ type, data }) {
  switch (type) {
    case "job.state":
      return `The job is ${data.state}${data.reason ? `: ${data.reason}` : ""}.`;
    case "job.bundle":
      return `The job's code came with it: ${data.digest}.`;
    case "round.opened":
      return `${roundName(data)} opened with ${number(data.num_tickets)} episodes.`;
    case "round.played":
      return `${roundName(data)} played in ${duration(data.wall_s)}: success ${percent(data.success_rate)}, reward ${number(data.reward_mean)}.`;
    case "eval.done":
      return `Evaluation after step ${data.step}: ${percent(data.success)} of ${number(data.num_tasks)} tasks solved.`;
    case "step.learned":
      return `Step ${counted(data.step)} learnt${data.policy ? ` by ${data.policy}` : ""}; version ${data.policy_version}, loss ${number(data.loss)}.`;
    case "step.recorded":
      return `Step ${counted(data.step)} done in ${duration(data.wall_s)}.`;
    case "replica.joined":
      return `${data.replica_id} joined (${data.kind}).`;
    case "replica.left":
      return `${data.replica_id} left: ${data.reason || "it fell silent"}.`;
    case "weights.published":
      return `Version ${data.policy_version} of ${data.policy} is on ${plural((data.replicas || []).length, "replica")}.`;
    case "weights.caught_up":
      return `${data.replica} took version ${data.policy_version} of ${data.policy} late.`;
    case "weights.refused":
      return `${data.replica} refused version ${data.policy_version} of ${data.policy}: ${data.reason}`;
    case "component.condition":
      return `${data.name}: ${[data.condition, data.detail].filter(Boolean).join(": ") || data.state}`;
    case "parity.alarm":
      return `Step ${counted(data.step)}: rollout and trainer disagree on ${data.policy} (ratio ${number(data.ratio)}, KL ${number(data.kl)}).`;
    case "tracker.failed":
      return `The tracker ${data.kind} failed: ${data.error}`;
    case "phase.resolved":
      return `No longer: ${data.sentence}`;
    default:
      return data.sentence || data.reason || data.error || JSON.stringify(data);
  }
}

const roundName = (data) => (data.kind === "eval" ? `Evaluation after step ${data.step}` : `Step ${counted(data.step)}`);

// Sentences count steps from 1, as the head of the page does; records count from 0.
const counted = (step) => step + 1;
