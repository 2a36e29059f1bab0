// The tree of an episode: one column a draw, one dot a candidate, a line from the chosen one to the
// candidates that continue it. Dots are coloured by reward, from an agent's lowest to its highest.
import { html } from "../html.js";
import { number, signed } from "../format.js";

const COLUMN = 92;
const ROW = 20;
const TOP = 40;
const LEFT = 30;

export function Tree({ groups, onPick, picked }) {
  const ranges = rangesOf(groups);
  const most = Math.max(...groups.map((group) => group.candidates.length));
  const middle = TOP + ((most - 1) * ROW) / 2;
  const height = TOP + most * ROW;
  const width = LEFT + groups.length * COLUMN;
  const y = (group, index) => middle + (index - (group.candidates.length - 1) / 2) * ROW;
  const x = (column) => LEFT + column * COLUMN + 14;
  // Of a tree of joint actions only the columns of its best line of play have a chosen candidate.
  const line = groups.map((_, column) => column).filter((column) => chosenOf(groups[column]) >= 0);
  const links = line.slice(1).flatMap((column, i) => {
    const before = line[i];
    const from = [x(before), y(groups[before], chosenOf(groups[before]))];
    return groups[column].candidates.map((candidate, k) => {
      const to = [x(column), y(groups[column], k)];
      return {
        d: `M${from}C${from[0] + COLUMN / 2} ${from[1]} ${to[0] - COLUMN / 2} ${to[1]} ${to}`,
        isChosen: candidate.is_chosen,
      };
    });
  });
  return html`<div class="tree" tabIndex="0" role="group" aria-label="Tree of draws"><svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`}>
    ${groups.map((group, column) => html`<rect key=${group.group_id} x=${x(column) - 40} y="2" width="80" height=${height - 4} rx="8" class=${picked === column ? "draw-box picked" : "draw-box"} />`)}
    ${links.map((link, i) => html`<path key=${i} d=${link.d} class=${link.isChosen ? "branch chosen" : "branch"} />`)}
    ${groups.map((group, column) => html`<${Draw} key=${group.group_id} group=${group} x=${x(column)} y=${(index) => y(group, index)} height=${height} isPicked=${picked === column}
      shade=${(reward) => shadeOf(reward, ...ranges.get(group.agent))} onPick=${() => onPick(column)} />`)}
  </svg></div>`;
}

function Draw({ group, x, y, height, shade, isPicked, onPick }) {
  const press = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onPick();
  };
  return html`<g class=${isPicked ? "draw picked" : "draw"} role="button" tabIndex="0" onClick=${onPick} onKeyDown=${press}
      aria-label=${`Turn ${group.turn + 1}, ${group.agent}, ${group.candidates.length} candidates, mean reward ${number(group.reward_mean)}`}>
    <rect x=${x - 40} y="2" width="80" height=${height - 4} rx="8" class="draw-hit" />
    <text x=${x} y="17" class="draw-agent">${group.agent}</text>
    ${group.candidates.map((candidate, index) => html`<g key=${index}><title>${`candidate ${candidate.index + 1}: reward ${signed(candidate.reward)}${candidate.is_chosen ? ", chosen" : ""}`}</title>
      <circle cx=${x} cy=${y(index)} r=${candidate.is_chosen ? 7 : 5.5} class=${`candidate ${shade(candidate.reward)} ${candidate.is_chosen ? "chosen" : ""}`} /></g>`)}
  </g>`;
}

function chosenOf(group) {
  return group.candidates.findIndex((candidate) => candidate.is_chosen);
}

// Lowest and highest reward of each agent in the episode.
export function rangesOf(groups) {
  const ranges = new Map();
  for (const group of groups) {
    const rewards = group.candidates.map((candidate) => candidate.reward);
    const [low, high] = ranges.get(group.agent) || [Infinity, -Infinity];
    ranges.set(group.agent, [Math.min(low, ...rewards), Math.max(high, ...rewards)]);
  }
  return ranges;
}

// Seven classes from the lowest to the highest.
export function shadeOf(reward, low, high) {
  if (high <= low) return "shade-3";
  return `shade-${Math.min(6, Math.floor((7 * (reward - low)) / (high - low)))}`;
}
