// One episode of a job.
import { NativeSelect, useDocumentTitle, useLocation } from "../../vendor/ui.js";
import { jobPath } from "../api.js";
import { duration, number, plural } from "../format.js";
import { html } from "../html.js";
import { Outcome } from "../job/episodes.js";
import { BackLink, Empty, Loaded, PageHead, Stat } from "../parts.js";
import { useResource } from "../resource.js";
import { EpisodeView } from "../viewer/episode_view.js";

export function EpisodePage({ id, episode }) {
  useDocumentTitle(`${episode} · ${id} · Troupe`);
  const job = useResource(jobPath(id));
  const resource = useResource(jobPath(id, `/episodes/${encodeURIComponent(episode)}`));
  return html`<${Loaded} resource=${resource} what="Loading the episode">${(data) => html`<${View} id=${id} episode=${data} agents=${job.data ? Object.keys(job.data.spec.agents) : []} />`}<//>`;
}

function View({ id, episode, agents }) {
  const [, go] = useLocation();
  const base = `/jobs/${encodeURIComponent(id)}`;
  const others = episode.others || [];
  const note = html`<${Outcome} row=${episode} /><span>${episode.kind === "eval" ? "evaluation" : "training"}, step ${episode.step}</span><span class="mono faint">${episode.id}</span>`;
  const compare = others.length > 0 && html`<${NativeSelect} aria-label="Compare with the same task at another step" value="" onChange=${(event) => go(`${base}/compare/${encodeURIComponent(episode.id)}/${encodeURIComponent(event.currentTarget.value)}`)}
    data=${[{ value: "", label: "Compare with …" }, ...others.map((twin) => ({ value: twin.id, label: `${twin.kind === "eval" ? "evaluation" : "training"}, step ${twin.step}: ${twin.is_success ? "solved" : "not solved"}` }))]} />`;
  return html`<${PageHead} title=${episode.task_id} note=${note} actions=${compare} back=${html`<${BackLink} href=${`${base}/episodes`}>Episodes of ${id}<//>`} />
    <div class="stats">
      <${Stat} label="Team return" value=${number(episode.team_return)} />
      <${Stat} label="Turns" value=${number(episode.num_turns)} note=${plural(episode.num_groups, "draw")} />
      <${Stat} label="Candidates" value=${number(episode.num_candidates)} note=${plural(episode.num_tokens, "token")} />
      <${Stat} label="Time" value=${duration(episode.wall_s)} />
    </div>
    ${episode.dropped_reason ? html`<${Empty} title="This episode was dropped">${episode.dropped_reason}<//>` : html`<${EpisodeView} job=${id} episode=${episode} agents=${agents} />`}`;
}
