// What is known of one job, kept fresh: its series and events. Components subscribe to it.
import { withQuery, jobPath, request } from "../api.js";
import { append, emptySeries } from "../charts/series.js";
import { follow } from "../events.js";

const MAX_EVENTS = 1000;
const MAX_POINTS = 1000;

export class Feed {
  constructor(jobId) {
    this.jobId = jobId;
    this.tables = emptySeries();
    this.fields = [];
    this.panels = [];
    this.events = [];
    this.link = "loading";
    this.error = null;
    this.listeners = new Set();
    this.isLoaded = false;
    this.early = [];
    this.openedAt = Date.now() / 1000;
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
  async open() {
    this.stop = follow(this.jobId, "0", {
      onEvent: (event) => this.take(event),
      onLink: (link) => {
        this.link = link;
        this.tell({ type: "link" });
      },
    });
    try {
      const loaded = await request(withQuery(jobPath(this.jobId, "/metrics"), { max_points: MAX_POINTS }));
      this.tables = { train: loaded.train, eval: loaded.eval };
      this.fields = loaded.fields;
      this.panels = loaded.panels;
    } catch (error) {
      this.error = error;
    }
    this.isLoaded = true;
    for (const event of this.early.splice(0)) this.grow(event);
    this.tell({ type: "loaded" });
  }

  close() {
    this.stop();
    this.listeners.clear();
  }

  take(event) {
    this.events.push(event);
    if (this.events.length > MAX_EVENTS) this.events.splice(0, this.events.length - MAX_EVENTS);
    if (this.isLoaded) this.grow(event);
    else this.early.push(event);
    this.tell(event);
  }

  // The stream begins with the job's past, which the loaded series already hold. A later event about
  // a step that is already there means that the job was resumed from before it.
  grow(event) {
    const table = { "step.recorded": this.tables.train, "eval.done": this.tables.eval }[event.type];
    if (!table) return;
    const isKnown = table.steps.length > 0 && event.data.step <= table.steps.at(-1);
    if (!isKnown || event.occurred_at > this.openedAt) append(table, event.data);
  }
}
