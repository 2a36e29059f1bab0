// Which numbers are drawn together, under which words.
import { duration, number, percent } from "../format.js";
import { columns } from "./series.js";

const share = (value) => percent(value, 0);

// from: "train" or "eval" table; names: exact, or a prefix of dotted names. An optional panel is only
// there when something of it was measured.
export const GROUPS = [
  {
    title: "Learning",
    panels: [
      { id: "success", title: "Success", hint: "Share of episodes that solve the task. Evaluation is on tasks that are never trained on.", isWide: true, format: share, range: [0, 1],
        series: [{ from: "train", names: ["success_rate"], label: "training" }, { from: "eval", names: ["success"], label: "evaluation", isDotted: true }] },
      { id: "reward", title: "Reward by agent", hint: "Mean mixed reward of an agent's candidates.", format: number,
        series: [{ from: "train", names: ["reward_by_agent"] }] },
      { id: "spread", title: "Reward and advantage spread", hint: "Standard deviations. When both fall to 0 there is nothing left to learn from.", format: number,
        series: [{ from: "train", names: ["reward_std"], label: "reward" }, { from: "train", names: ["advantage_std"], label: "advantage" }] },
      { id: "parts", title: "Reward by component", hint: "Mean of each reward term, unweighted, before they are mixed.", isWide: true, format: number,
        series: [{ from: "train", names: ["reward_by_term"] }] },
      { id: "lengths", title: "Completion length", hint: "Mean tokens in a completion.", format: number,
        series: [{ from: "train", names: ["completion_tokens"], label: "tokens" }] },
      { id: "turns", title: "Turns and truncation", hint: "Mean turns of an episode, and the share of completions that ran into the token limit.", format: number,
        series: [{ from: "train", names: ["turns_mean"], label: "turns" }, { from: "train", names: ["truncated_fraction"], label: "truncated share" }] },
    ],
  },
  {
    title: "Stability",
    panels: [
      { id: "kl", title: "KL divergence", hint: "Between the rollout engine and the trainer on the same tokens, and to the reference where one is kept.", format: number,
        series: [{ from: "train", names: ["kl_rollout"], label: "rollout" }, { from: "train", names: ["parity_kl"], label: "parity" }, { from: "train", names: ["kl_reference", "kl_ref"], label: "reference" }] },
      { id: "entropy", title: "Entropy", hint: "Of the sampled tokens, in nats. A steep fall means that the policy stops exploring.", format: number,
        series: [{ from: "train", names: ["entropy"], label: "entropy" }], byPolicy: "entropy" },
      { id: "clip", title: "Clip fraction", hint: "Share of tokens whose ratio was clipped. Up to 0.2 is usual; above 0.5 the learning rate is too high.", format: share,
        series: [{ from: "train", names: ["clip_fraction_low"], label: "low" }, { from: "train", names: ["clip_fraction_high"], label: "high" }] },
      { id: "grad", title: "Gradient norm", hint: "Before clipping, by policy where there are several.", format: number,
        series: [{ from: "train", names: ["grad_norm"], label: "norm" }], byPolicy: "grad_norm" },
      { id: "value", title: "Critic", hint: "How much of the returns' variance the critic explains, and its loss.", format: number, isOptional: true,
        series: [{ from: "train", names: ["explained_variance"], label: "explained variance" }, { from: "train", names: ["value_loss"], label: "loss" }] },
    ],
  },
  {
    title: "Where the time goes",
    panels: [
      { id: "phases", title: "Step time by phase", hint: "Wall time of each step, split over its phases.", format: duration, isStacked: true, isWide: true,
        series: [{ from: "train", names: ["phases"] }] },
      { id: "tokens", title: "Tokens per second", hint: "Sampled tokens over the time in which something was generated.", format: number,
        series: [{ from: "train", names: ["tokens_per_s"], label: "tokens/s" }] },
      { id: "staleness", title: "Staleness", hint: "Versions between what sampled a token and what learnt from it. 0 is on-policy.", format: number,
        series: [{ from: "train", names: ["staleness", "staleness_mean", "staleness_max"] }] },
    ],
  },
  {
    title: "What was trained",
    panels: [
      { id: "groups", title: "Groups", hint: "Groups that were trained, and those whose candidates all had the same reward.", isWide: true, format: number,
        series: [{ from: "train", names: ["groups_trained"], label: "trained" }, { from: "train", names: ["groups_zero_variance"], label: "no variance" }] },
      { id: "dropped", title: "Dropped groups by reason", hint: "Groups that were not learnt from, and why.", isWide: true, format: number, isStacked: true, emptyText: "No group was dropped.",
        series: [{ from: "train", names: ["groups_dropped"] }] },
    ],
  },
];

const PHASES = ["generate", "env", "learn", "publish", "checkpoint", "other"];

// The columns of a panel that there are: [{from, name, label, isDotted}], agents and phases in their own order.
export function panelColumns(panel, tables, agents) {
  const several = panel.byPolicy ? policyColumns(panel.byPolicy, tables.train) : [];
  if (several.length > 1) return several;
  const found = panel.series.flatMap(({ from, names, label, isDotted }) =>
    columns(tables[from], names).map((name) => ({
      from, name, isDotted: Boolean(isDotted),
      label: name.includes(".") ? name.slice(name.indexOf(".") + 1).replaceAll(".", " · ").replaceAll("_", " ") : label || name.replaceAll("_", " "),
    })),
  );
  const order = { phases: PHASES, reward: agents }[panel.id];
  if (!order) return found;
  const place = (column) => order.indexOf(column.label) + 1 || order.length;
  return found.sort((a, b) => place(a) - place(b));
}

// A number of each policy, for jobs that train several.
const policyColumns = (name, table) =>
  Object.keys(table.series).flatMap((full) => {
    const [, policy] = full.match(/^by_policy\.(.+)\.(?:[^.]+)$/) || [];
    return policy && full.endsWith(`.${name}`) ? [{ from: "train", name: full, label: policy, isDotted: false }] : [];
  });
