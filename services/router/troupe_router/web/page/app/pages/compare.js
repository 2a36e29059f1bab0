// The same task at two steps, side by side.
import { Link, useDocumentTitle } from "../../vendor/ui.js";
import { jobPath } from "../api.js";
import { number, plural } from "../format.js";
import { html } from "../html.js";
import { Outcome } from "../job/episodes.js";
import { BackLink, Loaded, PageHead } from "../parts.js";
import { useResource } from "../resource.js";
import { EpisodeView } from "../viewer/episode_view.js";

export function ComparePage({ id, one, other }) {
  useDocumentTitle(`Compare · ${id} · Troupe`);
  const job = useResource(jobPath(id));
  const first = useResource(jobPath(id, `/episodes/${encodeURIComponent(one)}`));
  const second = useResource(jobPath(id, `/episodes/${encodeURIComponent(other)}`));
  const agents = job.data ? Object.keys(job.data.spec.agents) : [];
  const [left, right] = inOrder(first, second);
  const base = `/jobs/${encodeURIComponent(id)}`;
  return html`<${PageHead} title=${first.data ? first.data.task_id : "Compare"} note=${html`<span>the same task at two steps</span>`} back=${html`<${BackLink} href=${`${base}/episodes/${encodeURIComponent(one)}`}>Episode<//>`} />
    <div class="compare">${[left, right].map((resource, i) => html`<div key=${i} class="compare-side"><${Loaded} resource=${resource} what="Loading the episode">${(data) => html`
      <header class="compare-head"><h2><${Link} href=${`${base}/episodes/${encodeURIComponent(data.id)}`}>${data.kind === "eval" ? "Evaluation" : "Training"}, step ${data.step}<//></h2><${Outcome} row=${data} /><span class="faint">return ${number(data.team_return)}, ${plural(data.num_turns, "turn")}</span></header>
      <${EpisodeView} job=${id} episode=${data} agents=${agents} hasKeys=${false} />`}<//></div>`)}</div>`;
}

// The earlier step stands on the left.
function inOrder(first, second) {
  if (first.data && second.data && first.data.step > second.data.step) return [second, first];
  return [first, second];
}
