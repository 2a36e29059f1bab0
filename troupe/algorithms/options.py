"""Checks the parts of a spec that only some algorithms read: none missing, none ignored."""

from collections.abc import Collection
from typing import Literal

from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import Issue, SpecInvalidError

Option = Literal["joint", "follow", "critic", "preference"]

_MISSING: dict[Option, str] = {
    "joint": "draws joint actions; add `joint: {mode: aligned}`",
    "follow": "follows its candidates; add `follow: {executions: 2}`",
    "critic": "needs a critic; add `critic: {kind: model}`, or a value head with `kind: head`",
    "preference": "learns from pairs; add `preference: {beta: 0.1}`",
}


def check_options(
    spec: AlgorithmSpec,
    options: Collection[Option],
    required: Collection[Option],
    *,
    redraws: bool,
) -> None:
    """Raise SpecInvalidError for each part that is missing, or that nothing would read."""
    parts: dict[Option, object] = {
        "joint": spec.joint,
        "follow": spec.follow,
        "critic": spec.critic,
        "preference": spec.preference,
    }
    issues: list[Issue] = []
    for name, part in parts.items():
        if part is None and name in required:
            issues.append(Issue(f"/algorithm/{name}", f"'{spec.kind}' {_MISSING[name]}"))
        elif part is not None and name not in options:
            message = f"'{spec.kind}' does not read this part; remove it, or change /algorithm/kind"
            issues.append(Issue(f"/algorithm/{name}", message))
    if spec.redraws and not redraws:
        message = f"'{spec.kind}' learns from groups without variance as well; leave it out"
        issues.append(Issue("/algorithm/redraws", message))
    if issues:
        raise SpecInvalidError(issues)


def refuse_penalties(spec: AlgorithmSpec, why: str) -> None:
    """Raise SpecInvalidError for what the trainer would subtract from rewards; ``why`` it can't."""
    kl, issues = spec.loss.kl, list[Issue]()
    if kl.coef > 0.0 and kl.where == "reward":
        issues.append(Issue("/algorithm/loss/kl/where", f"{why}; use `where: loss`"))
    if spec.overlong is not None:
        issues.append(Issue("/algorithm/overlong", f"{why}; remove it, or use grpo"))
    if issues:
        raise SpecInvalidError(issues)
