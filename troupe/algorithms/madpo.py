"""MADPO: the team prefers the best joint action of a node to the worst.

The loss of agent i on one pair is -log sigmoid(beta * (D_i + sum of the others' D_j)), where D is
log pi / pi_ref of the winner minus that of the loser, and the others' are constants. Its gradient
is that of a policy gradient whose advantages are +w and -w, w = beta * sigmoid(-beta * sum of D),
at the weights for which w was computed. So pairs convert exactly to advantages: a step has one
minibatch, and the trainer computes D at its beginning.

Unlike CoMLRL 1.4.3, which omits the reference, D is relative to it (the policy at the start of
the job), and every step draws new pairs from the current policies. Agents that do not
learn in a step send no groups: they count neither in the comparison nor in the sum.

Source: DPO (arXiv 2305.18290), Equation 7; joint preferences: CoMLRL (arXiv 2508.04652) 1.4.3.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from troupe.algorithms.advantages import ZERO_STD
from troupe.algorithms.algorithm import GroupOutcome, LossInputs, LossOutput, Needs
from troupe.algorithms.base import GroupRelative
from troupe.spec.algorithm import AlgorithmSpec, LossSpec
from troupe.spec.issues import Issue, SpecInvalidError


class Madpo(GroupRelative):
    """Joint actions of aligned candidates; one pair a node, best against worst."""

    options = frozenset({"joint", "preference"})
    required = frozenset({"joint", "preference"})
    default_aggregation = "sequence_sum"

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        issues: list[Issue] = []
        if spec.joint is not None and spec.joint.mode != "aligned":
            issues.append(Issue("/algorithm/joint/mode", "a pair is of aligned candidates"))
        for field, count in (("minibatches", spec.minibatches), ("epochs", spec.epochs)):
            if count != 1:
                message = "preferences hold for the weights at the beginning of a step; use 1"
                issues.append(Issue(f"/algorithm/{field}", message))
        if spec.loss != LossSpec() or spec.aggregation or spec.scale:
            message = "madpo has a loss of its own; leave out loss, aggregation and scale"
            issues.append(Issue("/algorithm/loss", message))
        if spec.filters.truncated:
            message = "a winner without its loser is no pair; leave it out, or use overlong"
            issues.append(Issue("/algorithm/filters/truncated", message))
        if issues:
            raise SpecInvalidError(issues)

    @property
    def needs(self) -> Needs:
        """Log ratios to the reference, and the groups of the whole team."""
        return Needs(log_ratios=True, team=True)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """0 for all: only ``across_groups`` sees the whole team."""
        return [0.0] * len(group.candidates)

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """+K * w for the winner and -K * w for the loser of each node, 0 for the others.

        The loss is divided by the number of completions, K a node: a mean over nodes, in which a
        tie adds 0 (``filters.zero_variance`` leaves ties out).
        Joint actions are compared by the mean of the agents' returns.
        """
        preferences = [list(group_advantages) for group_advantages in advantages]
        nodes: defaultdict[str, list[int]] = defaultdict(list)
        for number, group in enumerate(groups):
            nodes[group.node].append(number)
        for numbers in nodes.values():
            team = [groups[number].candidates for number in numbers]
            count = min(len(candidates) for candidates in team)
            returns = [math.fsum(candidates[k].reward for candidates in team) for k in range(count)]
            best, worst = returns.index(max(returns)), returns.index(min(returns))
            if returns[best] - returns[worst] >= ZERO_STD:  # less is rounding
                margin = math.fsum(
                    candidates[best].log_ratio - candidates[worst].log_ratio for candidates in team
                )
                for number in numbers:
                    preferences[number][best] = count * self._weight(margin)
                    preferences[number][worst] = -preferences[number][best]
        return preferences

    def loss(self, inputs: LossInputs) -> LossOutput:
        """-A * log pi."""
        from troupe.algorithms.losses import policy_gradient

        return policy_gradient(inputs)

    def _weight(self, margin: float) -> float:
        assert self._spec.preference is not None, "checked when the algorithm was made"
        beta = self._spec.preference.beta
        return beta / (1.0 + math.exp(min(beta * margin, 700.0)))
