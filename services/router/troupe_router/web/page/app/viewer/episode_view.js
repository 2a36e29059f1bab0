// A whole episode: its tree, then every draw. J and K go from draw to draw.
import { Switch, useHotkeys } from "../../vendor/ui.js";
import { html, useRef, useState } from "../html.js";
import { GroupCard } from "./group.js";
import { TokenLegend } from "./tokens.js";
import { Tree } from "./tree.js";

export function EpisodeView({ job, episode, agents, hasKeys = true }) {
  const groups = episode.turns.flatMap((turn) => turn.groups);
  const family = episode.task_id.split("/")[0];
  const [picked, setPicked] = useState(0);
  const [isShaded, setShaded] = useState(true);
  const boxes = useRef([]);
  const pick = (index) => {
    const place = Math.max(0, Math.min(groups.length - 1, index));
    setPicked(place);
    boxes.current[place]?.scrollIntoView({ block: "start", behavior: "smooth" });
    boxes.current[place]?.focus({ preventScroll: true });
  };
  useHotkeys(hasKeys ? [["j", () => pick(picked + 1)], ["k", () => pick(picked - 1)]] : []);
  const hasTokens = groups.some((group) => group.candidates.some((candidate) => candidate.tokens));
  const isTree = groups.length > 0 && groups.every((group) => !group.spans_turns);
  return html`<div class="episode">
    ${isTree && html`<${Tree} groups=${groups} picked=${picked} onPick=${pick} />`}
    <div class="viewer-bar">${hasTokens ? html`<${Switch} size="sm" label="Shade tokens" checked=${isShaded} onChange=${(event) => setShaded(event.currentTarget.checked)} /><${TokenLegend} />` : html`<span class="faint">Token probabilities were not recorded for this episode.</span>`}
      ${hasKeys && html`<span class="faint keys"><kbd>J</kbd> <kbd>K</kbd> next and previous draw</span>`}</div>
    ${groups.map((group, i) => html`<${GroupCard} key=${group.group_id} box=${(node) => (boxes.current[i] = node)} group=${group} job=${job} agents=${agents} family=${family} isPicked=${picked === i} isShaded=${isShaded} onFocus=${() => setPicked(i)} />`)}
  </div>`;
}
