// One candidate: its reward with the parts, its advantage, its text, what it led to.
import { IconStar } from "../../vendor/ui.js";
import { html } from "../html.js";
import { number, signed, words } from "../format.js";
import { Tag } from "../parts.js";
import { TaskView } from "./task_view.js";
import { Completion } from "./tokens.js";

export function Candidate({ candidate, family, widest, isShaded, spansTurns }) {
  const parts = (candidate.reward_parts || []).filter((part) => part.value !== 0 || part.weight !== 0);
  return html`<article class=${candidate.is_chosen ? "cand chosen" : "cand"} data-chosen=${String(candidate.is_chosen)} aria-label=${`Candidate ${candidate.index + 1}${candidate.is_chosen ? ", chosen" : ""}`}>
    <header><span class="cand-name">${spansTurns ? `Trajectory ${candidate.trajectory + 1}, turn ${candidate.turn + 1}` : `Candidate ${candidate.index + 1}`}</span>
      ${candidate.is_chosen && html`<span class="chosen-mark"><${IconStar} size=${13} />chosen</span>`}
      ${candidate.is_success && html`<${Tag} color="teal" size="sm">solves<//>`}${candidate.is_truncated && html`<${Tag} color="orange" size="sm">cut off<//>`}${candidate.is_done && !candidate.is_success && html`<${Tag} size="sm">ends<//>`}</header>
    <div class="cand-numbers"><div><span class="stat-label">Reward</span><span class="cand-reward">${signed(candidate.reward)}</span></div>
      <div><span class="stat-label">Advantage</span><${Advantage} value=${candidate.advantage} widest=${widest} /></div></div>
    <${Completion} candidate=${candidate} isShaded=${isShaded} />
    ${parts.length > 0 && html`<dl class="parts">${parts.map((part) => [
      html`<dt key=${`${part.term}-name`}>${words(part.term)}</dt>`,
      html`<dd key=${part.term} title=${`value ${number(part.value)} times weight ${number(part.weight)}`}><span class="part-sum">${number(part.value)} × ${number(part.weight)}</span><strong>${signed(part.contribution)}</strong></dd>`,
    ])}</dl>`}
    ${candidate.info && Object.keys(candidate.info).length > 0 && html`<${TaskView} info=${candidate.info} task=${family} />`}
  </article>`;
}

function Advantage({ value, widest }) {
  if (value === null || value === undefined) return html`<span class="cand-reward faint">–</span>`;
  const width = widest > 0 ? Math.min(50, (50 * Math.abs(value)) / widest) : 0;
  const from = value < 0 ? 50 - width : 50;
  return html`<span class="advantage"><span class=${value > 0 ? "cand-reward good" : value < 0 ? "cand-reward bad" : "cand-reward"}>${signed(value)}</span>
    <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect x="0" y="2" width="100" height="2" class="adv-track" /><rect x=${from} y="0" width=${width} height="6" class=${value < 0 ? "adv-bad" : "adv-good"} /></svg></span>`;
}
