// Follows a job's events over SSE. The browser reconnects by itself and says where it was.
import { jobPath, request } from "./api.js";

// Every type that a job says: an EventSource hears only what it was told to listen to.
const TYPES = [
  "job.state", "job.bundle", "job.warning", "job.interrupted", "round.opened", "round.played", "step.learned", "step.recorded", "eval.done",
  "component.restarted", "component.condition", "replica.joined", "replica.left", "phase.overdue", "phase.resolved",
  "weights.published", "weights.caught_up", "weights.refused", "parity.alarm", "learning.flat", "learning.sparse", "learning.truncated", "reward.suspect", "program.failing",
  "checkpoint.failed", "recording.failed", "records.lost", "records.rebuilt", "tracker.failed",
  "disk.low", "disk.resolved", "redis.low", "redis.resolved",
];
const FINISHED = ["succeeded", "failed", "cancelled"];
const RETRY_MS = 3_000;

export const isFinished = (state) => FINISHED.includes(state);

// Whether an event says that its job is over: such a job says nothing more.
const tellsEnd = ({ type, data }) => type === "job.state" && isFinished(data.state);

// Calls onEvent({id, type, data, ...}) and onLink("live" | "lost" | "over", job); answers a function that ends it. It is over once
// the job has ended and all that it said was heard: what was said after a broken connection is still to come.
export function follow(jobId, after, { onEvent, onLink }) {
  let source;
  let timer;
  let place = after;
  let before;
  let isHeard;
  let isTold = false;
  let isOver = false;
  let isEnded = false;

  const open = () => {
    before = place;
    isHeard = false;
    source = new EventSource(`${jobPath(jobId, "/events")}?after=${encodeURIComponent(place)}`);
    source.onopen = () => {
      isHeard = true;
      onLink("live");
    };
    source.onerror = () => {
      source.close();
      if (!isEnded) look();
    };
    for (const type of TYPES) source.addEventListener(type, take);
  };
  const take = (message) => {
    place = message.lastEventId || place;
    const event = { id: message.lastEventId, ...JSON.parse(message.data) };
    isTold = tellsEnd(event);
    onEvent(event);
  };
  // The stream ends when the job is over, and also when the router goes away: ask which it is.
  const look = async () => {
    const isLast = isTold || (isOver && isHeard && place === before);
    try {
      const job = await request(jobPath(jobId));
      if (isEnded) return;
      isOver = isFinished(job.state);
      isTold &&= isOver; // a job that goes on says anew when it ends
      if (isOver && isLast) return onLink("over", job);
      if (isOver && isHeard) return open();
    } catch {
      if (isEnded) return;
    }
    onLink("lost");
    timer = setTimeout(open, RETRY_MS);
  };
  open();
  return () => {
    isEnded = true;
    clearTimeout(timer);
    source.close();
  };
}
