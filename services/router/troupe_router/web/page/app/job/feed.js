// What is known of one job, kept fresh: its series and events. Components subscribe to it.
import { jobPath, mayPass, request, routerTime, withQuery } from "../api.js";
import { append, emptySeries, tableOf } from "../charts/series.js";
import { follow } from "../events.js";

const MAX_EVENTS = 1000;
const MAX_POINTS = 1000;
const RETRY_MS = 3_000;

export class Feed {
  constructor(jobId) {
    this.jobId = jobId;
    this.tables = emptySeries();
    this.fields = [];
    this.panels = [];
    this.events = [];
    this.place = "0";
    this.link = "loading";
    this.life = 0;
    this.error = null;
    this.listeners = new Set();
    this.isLoaded = false;
    this.isAsking = false;
    this.isClosed = false;
    this.early = [];
    this.openedAt = routerTime(Date.now());
    this.stop = () => {};
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(what) {
    for (const listener of this.listeners) listener(what);
  }

  // Follows first and loads then, so that no line falls between the two; a step counts once.
  open() {
    this.follow();
    this.load();
  }

  follow() {
    this.stop = follow(this.jobId, this.place, {
      onEvent: (event) => this.take(event),
      onLink: (link, job) => {
        this.link = link;
        if (link === "over") this.life = job.life;
        if (link === "live") this.load();
        this.tell({ type: "link" });
      },
    });
  }

  // Follows a job again that was resumed after its end; job is what the router says of it now.
  meet(job) {
    if (this.link !== "over" || !(job.life > this.life)) return;
    this.link = "loading";
    this.tell({ type: "link" });
    this.follow();
  }

  // Until the series are there they are asked for again, each time that the router is heard and after a pause.
  load() {
    if (this.isLoaded || this.isAsking || this.isClosed) return;
    this.isAsking = true;
    clearTimeout(this.timer);
    const askedAtMs = Date.now();
    const path = withQuery(jobPath(this.jobId, "/metrics"), { max_points: MAX_POINTS });
    request(path).then((loaded) => this.show(loaded, askedAtMs), (error) => this.fail(error));
  }

  show(loaded, askedAtMs) {
    this.tables = { train: tableOf(loaded.train), eval: tableOf(loaded.eval) };
    this.fields = loaded.fields;
    this.panels = loaded.panels;
    this.openedAt = routerTime(askedAtMs);
    this.error = null;
    this.isLoaded = true;
    for (const event of this.early.splice(0)) this.grow(event);
    this.tell({ type: "loaded" });
  }

  fail(error) {
    this.isAsking = false;
    this.error = error;
    if (!this.isClosed && mayPass(error)) this.timer = setTimeout(() => this.load(), RETRY_MS);
    this.tell({ type: "loaded" });
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.stop();
    this.listeners.clear();
  }

  take(event) {
    this.place = event.id || this.place;
    keep(this.events, event);
    if (this.isLoaded) this.grow(event);
    else keep(this.early, event);
    this.tell(event);
  }

  // Whether an event happened after the series were asked for; the stream begins with the job's past.
  isNew(event) {
    return event.occurred_at > this.openedAt;
  }

  // The loaded series already hold the job's past. A later event about a step that is already there
  // means that the job was resumed from before it.
  grow(event) {
    const grown = { "step.recorded": this.tables.train, "eval.done": this.tables.eval }[event.type];
    if (!grown) return;
    const isKnown = grown.steps.length > 0 && event.data.step <= grown.steps.at(-1);
    if (!isKnown || this.isNew(event)) append(grown, event.data);
  }
}

function keep(events, event) {
  events.push(event);
  if (events.length > MAX_EVENTS) events.splice(0, events.length - MAX_EVENTS);
}
