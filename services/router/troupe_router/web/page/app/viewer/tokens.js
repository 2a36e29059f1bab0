// A completion, each token shaded by how unlikely it was when it was drawn.
import { html } from "../html.js";
import { number } from "../format.js";

const MAX_TOKENS = 4000;

export function Completion({ candidate, isShaded }) {
  const tokens = candidate.tokens;
  if (!tokens || !isShaded) return html`<pre class="completion">${candidate.text || html`<em class="faint">empty</em>`}</pre>`;
  const shown = tokens.texts.slice(0, MAX_TOKENS);
  const left = tokens.texts.length - shown.length;
  return html`<pre class="completion">${shown.map((text, i) => html`<span key=${i} class=${`token ${levelOf(tokens.logprobs[i])}`} title=${`p = ${number(Math.exp(tokens.logprobs[i]))}, log p = ${number(tokens.logprobs[i])}`}>${text}</span>`)}${left > 0 && `… and ${left} tokens more`}</pre>`;
}

// 0: certain; 5: less than one in twenty.
export function levelOf(logprob) {
  const p = Math.exp(logprob);
  return `lp-${[0.95, 0.8, 0.5, 0.2, 0.05].filter((limit) => p < limit).length}`;
}

export function TokenLegend() {
  const marks = [["lp-0", "≥ 0.95"], ["lp-1", "0.8"], ["lp-2", "0.5"], ["lp-3", "0.2"], ["lp-4", "0.05"], ["lp-5", "less"]];
  return html`<span class="token-legend" aria-label="Shading: probability of a token when it was drawn">probability ${marks.map(([name, label]) => html`<span key=${name} class=${`token ${name}`}>${label}</span>`)}</span>`;
}
