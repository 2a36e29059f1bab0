// One job: head, numbers that move, and its tabs.
import { Tabs, useDocumentTitle, useLocation } from "../../vendor/ui.js";
import { jobPath } from "../api.js";
import { Boundary } from "../boundary.js";
import { Board } from "../charts/board.js";
import { isFinished } from "../events.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { Feed } from "../job/feed.js";
import { Checkpoints } from "../job/checkpoints.js";
import { Episodes } from "../job/episodes.js";
import { EventList } from "../job/event_list.js";
import { JobHead, NowCard, Stats } from "../job/head.js";
import { Logs } from "../job/logs.js";
import { Policies } from "../job/policies.js";
import { SpecView } from "../job/spec.js";
import { paced } from "../pace.js";
import { Fault, Loaded } from "../parts.js";
import { useResource } from "../resource.js";

const TABS = [
  ["overview", "Overview", (job, feed) => html`<${Stats} feed=${feed} /><${Board} feed=${feed} agents=${Object.keys(job.spec.agents)} />`],
  ["episodes", "Episodes", (job) => html`<${Episodes} job=${job} />`],
  ["policies", "Policies", (job) => html`<${Policies} jobId=${job.job_id} />`],
  ["checkpoints", "Checkpoints", (job) => html`<${Checkpoints} jobId=${job.job_id} />`],
  ["events", "Events", (job, feed) => html`<${EventList} feed=${feed} />`],
  ["logs", "Logs", (job) => html`<${Logs} jobId=${job.job_id} />`],
  ["spec", "Spec", (job) => html`<${SpecView} job=${job} />`],
];

const RELOAD_MS = 1_000;

export function JobPage({ id, tab }) {
  useDocumentTitle(`${id} · Troupe`);
  const feed = useFeed(id);
  const job = useResource(jobPath(id), { everyMs: 3000 });
  return html`<${Loaded} resource=${job} what="Loading the job">${(data) => html`<${JobView} job=${data} fault=${job.error} reload=${job.reload} feed=${feed} tab=${tab} />`}<//>`;
}

function useFeed(id) {
  const feed = useMemo(() => new Feed(id), [id]);
  useEffect(() => {
    feed.open();
    return () => feed.close();
  }, [feed]);
  return feed;
}

function JobView({ job, fault, reload, feed, tab }) {
  const [, go] = useLocation();
  const [link, setLink] = useState(feed.link);
  const isOver = isFinished(job.state);
  const progress = useResource(isOver ? null : jobPath(job.job_id, "/progress"), { everyMs: 2000 });
  useEffect(() => {
    const again = paced(reload, RELOAD_MS);
    const unsubscribe = feed.subscribe((what) => {
      setLink(feed.link);
      if ((what.type === "job.state" || what.type === "step.recorded") && feed.isNew(what)) again.ask();
    });
    return () => {
      unsubscribe();
      again.stop();
    };
  }, [feed]);
  useEffect(() => feed.meet(job), [feed, link, job]);
  const show = (name) => go(name === "overview" ? `/jobs/${encodeURIComponent(job.job_id)}` : `/jobs/${encodeURIComponent(job.job_id)}/${name}`);
  const shown = TABS.find(([name]) => name === tab);
  return html`<${JobHead} job=${job} reload=${reload} />
    ${fault && html`<${Fault} error=${fault} retry=${reload} title="What you see may be old" />`}
    <${NowCard} job=${job} progress=${progress.data} link=${link} />
    <${Tabs} value=${tab} onChange=${show} keepMounted=${false} className="tabs">
      <${Tabs.List}>${TABS.map(([name, label]) => html`<${Tabs.Tab} key=${name} value=${name}>${label}<//>`)}<//>
      <${Tabs.Panel} value=${tab} pt="lg"><${Boundary} place=${tab}>${shown ? shown[2](job, feed) : "There is no such tab."}<//><//>
    <//>`;
}
