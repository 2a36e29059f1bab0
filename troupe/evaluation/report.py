"""The report of an evaluation, as one JSON document and as Markdown.

Formatting only; ``summary`` computes the figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from troupe import __version__
from troupe.evaluation.estimators import LEVEL, Estimate
from troupe.evaluation.plan import EvalPlan
from troupe.evaluation.summary import Comparison, PolicySummary
from troupe.evaluation.tables import table

MAX_MAIN_OUTCOMES = 4
"""Kinds of ends in the table of success; the others are in the one of outcomes."""


@dataclass(frozen=True, slots=True)
class Report:
    """Results of an evaluation: one summary per policy, in the requested order; comparisons."""

    plan: EvalPlan
    policies: Sequence[PolicySummary]
    comparisons: Sequence[Comparison]

    @property
    def num_errors(self) -> int:
        """Samples that could not be played."""
        return sum(policy.num_errors for policy in self.policies)


def report_json(report: Report) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "troupe_version": __version__,
        "digest": report.plan.digest,
        "confidence": LEVEL,
        "plan": report.plan.model_dump(mode="json"),
        "policies": [_rounded(asdict(policy)) for policy in report.policies],
        "comparisons": [_rounded(asdict(comparison)) for comparison in report.comparisons],
    }


def report_markdown(report: Report) -> str:
    """The report as Markdown."""
    plan = report.plan
    last = plan.first_task + plan.num_tasks - 1
    parts = [
        f"# {plan.task.name}: {len(report.policies)} "
        f"{'policy' if len(report.policies) == 1 else 'policies'}",
        f"{plan.num_tasks} tasks ({plan.split} {plan.first_task} to {last}), {plan.num_samples} "
        f"{'sample' if plan.num_samples == 1 else 'samples'} each, seed {plan.seed}, workflow "
        f"{plan.workflow.kind} ({', '.join(plan.workflow.order)}; at most "
        f"{plan.workflow.max_turns} turns), temperature {plan.sampling.temperature:g}, parameters "
        f"`{plan.task.params or 'the usual'}`.",
        _success_table(report.policies),
        _method(report.policies),
        "## Failures\n\n" + _failure_table(report.policies),
        "## Agents\n\n" + _agent_table(report.policies),
    ]
    if any(policy.outcomes for policy in report.policies):
        parts.append("## Outcomes\n\n" + _outcomes(report.policies))
    if report.comparisons:
        parts.append("## Differences in success, task by task\n\n" + _comparisons(report))
    return "\n\n".join(parts) + "\n"


def _success_table(policies: Sequence[PolicySummary]) -> str:
    ks = sorted({k for policy in policies for k in policy.pass_at_k if k > 1})
    has_outcomes = any(policy.outcomes for policy in policies)
    head = ["policy", "success", *(["outcomes"] if has_outcomes else [])]
    head += [*(f"pass@{k}" for k in ks), "team return", "turns", "tokens"]
    rows = [
        [
            policy.policy,
            percent(policy.success),
            *([_main_outcomes(policy)] if has_outcomes else []),
            *(percent(policy.pass_at_k.get(k)) for k in ks),
            _number(policy.team_return),
            _plain(policy.turns_mean, 2),
            _plain(policy.tokens_mean, 1),
        ]
        for policy in policies
    ]
    return table(head, rows)


def _method(policies: Sequence[PolicySummary]) -> str:
    methods = dict.fromkeys(p.success.method for p in policies if p.success)
    of_returns = dict.fromkeys(p.team_return.method for p in policies if p.team_return)
    notes = (
        f"Intervals hold {LEVEL:.0%}: of success {'; '.join(methods)}; of returns and rewards "
        f"{'; '.join(of_returns)}."
        if methods
        else ""
    )
    errors = sum(p.num_errors for p in policies)
    if errors:
        last = next(p.last_error for p in reversed(policies) if p.last_error)
        notes += (
            f" {errors} samples could not be played and are not scored (last: {last}); the same "
            "command with the same folder tries them again."
        )
    return f"{notes} Turns and tokens are means over episodes; tokens are sampled ones.".strip()


def _failure_table(policies: Sequence[PolicySummary]) -> str:
    kinds = ["truncated", "format", "illegal", "wrong", "error"]
    rows = [
        [
            policy.policy,
            str(sum(policy.failures.values()) - policy.failures.get("error", 0)),
            *(str(policy.failures.get(kind, 0)) for kind in kinds),
            ", ".join(f"{k} {share:.1%}" for k, share in policy.faulty_actions.items()) or "-",
        ]
        for policy in policies
    ]
    return table(["policy", "failed", *kinds, "faulty actions"], rows)


def _agent_table(policies: Sequence[PolicySummary]) -> str:
    rows = [
        [
            policy.policy,
            agent,
            policy.seats.get(agent, "-"),
            _number(summary.reward),
            ", ".join(f"{term} {value:.3f}" for term, value in summary.terms.items()) or "-",
            _plain(summary.actions_mean, 2),
        ]
        for policy in policies
        for agent, summary in policy.agents.items()
    ]
    return table(["policy", "agent", "played by", "reward", "terms", "actions"], rows)


def _outcomes(policies: Sequence[PolicySummary]) -> str:
    kinds = list(dict.fromkeys(kind for policy in policies for kind in policy.outcomes))
    rows = [[p.policy, *(str(p.outcomes.get(kind, 0)) for kind in kinds)] for p in policies]
    return table(["policy", *kinds], rows)


def _main_outcomes(policy: PolicySummary) -> str:
    """The most frequent outcomes: in a game with many draws, success alone says little."""
    shown = list(policy.outcomes.items())[:MAX_MAIN_OUTCOMES]
    more = ["..."] if len(policy.outcomes) > len(shown) else []
    return ", ".join([*(f"{kind} {count}" for kind, count in shown), *more]) or "-"


def _comparisons(report: Report) -> str:
    rows = [
        [c.policy, c.against, percent(c.difference, sign=True), str(c.difference.num_tasks)]
        for c in report.comparisons
    ]
    return table(["policy", "less", "difference", "tasks"], rows)


def percent(estimate: Estimate | None, *, sign: bool = False) -> str:
    """``"87.5 % (82.1 to 91.4)"``; ``"-"`` where there is no estimate."""
    if estimate is None:
        return "-"
    mean = f"{100 * estimate.mean:+.1f} %" if sign else f"{100 * estimate.mean:.1f} %"
    if estimate.low is None or estimate.high is None:
        return mean
    return f"{mean} ({100 * estimate.low:.1f} to {100 * estimate.high:.1f})"


def _number(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.mean:.3f}"
    return f"{estimate.mean:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"


def _plain(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _rounded(value: Any) -> Any:
    """Floats to six digits, in nested plain values."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Mapping):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
