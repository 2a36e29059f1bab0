"""Credit assignment of one step: groups of all policies in, samples with advantages out.

Owns the inputs that an algorithm may need before its advantages: KL in the reward, values and log
ratios. Never changes a weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from troupe.algorithms.algorithm import Algorithm, advantages_by_policy, advantages_of_group
from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import GroupOutcome, group_outcome
from troupe.spec.job import JobSpec
from troupe_trainer.samples import CreditedGroup, Lesson, credit

if TYPE_CHECKING:
    from troupe_trainer.learn.critics import Critics
    from troupe_trainer.learn.learner import Learner

Groups = Mapping[str, Sequence[pb.Group]]


@dataclass(frozen=True, slots=True)
class AssignedCredit:
    """Credited groups, and the critics' lessons from them, by policy."""

    groups: dict[str, list[CreditedGroup]]
    lessons: dict[str, list[Lesson]]


class CreditAssigner:
    """Assigns the credit of one job's steps. ``critics`` is None for algorithms that need none."""

    def __init__(
        self,
        spec: JobSpec,
        algorithm: Algorithm,
        learners: Mapping[str, Learner],
        critics: Critics | None,
    ) -> None:
        self._spec = spec
        self._algorithm = algorithm
        self._learners = learners
        self._critics = critics

    def assign(self, groups: Groups) -> AssignedCredit:
        """Advantages of all groups of a step, attached to their completions."""
        outcomes = {
            policy: self._outcomes(policy, policy_groups)
            for policy, policy_groups in groups.items()
        }
        lessons: dict[str, list[Lesson]] = {}
        if self._critics is not None:
            for policy, policy_groups in groups.items():
                prompts = [self._critics.prompts(group) for group in policy_groups]
                values = self._critics.values(policy, prompts)
                outcomes[policy] = _with(outcomes[policy], "value", values)
                lessons[policy] = self._lessons(prompts, outcomes[policy])
        advantages = advantages_by_policy(self._algorithm, outcomes)
        drop = self._spec.algorithm.filters.truncated
        credited = {
            policy: [
                self._attach(group, group_advantages, drop_truncated=drop)
                for group, group_advantages in zip(policy_groups, advantages[policy], strict=True)
            ]
            for policy, policy_groups in groups.items()
        }
        return AssignedCredit(credited, lessons)

    def _outcomes(self, policy: str, groups: Sequence[pb.Group]) -> list[GroupOutcome]:
        outcomes = [self._shortened(group) for group in groups]
        kl, learner = self._spec.algorithm.loss.kl, self._learners[policy]
        is_taxed = kl.coef > 0.0 and kl.where == "reward"
        if not groups or not (is_taxed or self._algorithm.needs.log_ratios):
            return outcomes
        plain = [self._attach(group, [0.0] * len(group.candidates)) for group in groups]
        if is_taxed:
            outcomes = [
                self._penalised(group, outcome, values, learner.kl_coef)
                for group, outcome, values in zip(
                    groups, outcomes, learner.reference_kl(plain), strict=True
                )
            ]
        if self._algorithm.needs.log_ratios:
            outcomes = _with(outcomes, "log_ratio", learner.log_ratios(plain))
        return outcomes

    def _penalised(
        self, group: pb.Group, outcome: GroupOutcome, penalties: Sequence[float], coef: float
    ) -> GroupOutcome:
        """``outcome`` of ``group``, whose candidates by task carry their trajectory's return."""
        by_turn = self._algorithm.sampler().grouping in ("turns", "acts")
        is_return = group.key == pb.GROUP_KEY_TASK and not by_turn
        return penalised(outcome, penalties, coef, by_trajectory=is_return)

    def _shortened(self, group: pb.Group) -> GroupOutcome:
        """Of ``group``, with the penalty of completions near the token limit in its rewards."""
        outcome, overlong = group_outcome(group), self._spec.algorithm.overlong
        if overlong is None:
            return outcome
        limit = self._spec.sampling_for(outcome.agent).max_new_tokens
        lengths = [candidate.num_tokens for candidate in outcome.candidates]
        penalties = [overlong_penalty(length, limit, overlong.buffer) for length in lengths]
        return self._penalised(group, outcome, penalties, overlong.weight)

    def _lessons(
        self, prompts: Sequence[Sequence[tuple[int, ...]]], outcomes: Sequence[GroupOutcome]
    ) -> list[Lesson]:
        """The critic's target is its value plus the advantage before any whitening."""
        return [
            Lesson(prompt, candidate.value + advantage, candidate.value)
            for group_prompts, outcome in zip(prompts, outcomes, strict=True)
            for prompt, candidate, advantage in zip(
                group_prompts,
                outcome.candidates,
                advantages_of_group(self._algorithm, outcome),
                strict=True,
            )
        ]

    def _attach(
        self, group: pb.Group, advantages: Sequence[float], *, drop_truncated: bool = False
    ) -> CreditedGroup:
        temperature = self._spec.sampling_for(group.agent).temperature
        credited = credit(group, advantages, temperature, drop_truncated=drop_truncated)
        return replace(credited, is_taught=self._algorithm.needs.teacher)


def _with(
    outcomes: Sequence[GroupOutcome], name: str, values: Sequence[Sequence[float]]
) -> list[GroupOutcome]:
    """``outcomes`` with ``values`` in the candidates' field ``name``."""
    return [
        replace(
            outcome,
            candidates=[
                replace(candidate, **{name: value})
                for candidate, value in zip(outcome.candidates, group_values, strict=True)
            ],
        )
        for outcome, group_values in zip(outcomes, values, strict=True)
    ]


def overlong_penalty(num_tokens: int, limit: int, buffer: int) -> float:
    """0 up to ``limit - buffer`` tokens, then linear, 1 at ``limit``.

    Source: DAPO (arXiv 2503.14476), Equation 13, negated.

    Example: ``overlong_penalty(90, limit=100, buffer=40) == 0.75``.
    """
    return min(1.0, max(0.0, num_tokens - (limit - buffer)) / buffer)


def penalised(
    group: GroupOutcome, penalties: Sequence[float], coef: float, *, by_trajectory: bool
) -> GroupOutcome:
    """``group`` with coef * penalty subtracted from each reward: a candidate's or a trajectory's.

    ``penalties`` holds each candidate's KL or other cost, in index order. ``by_trajectory``: all
    candidates of a trajectory carry its return, so the sum of theirs is subtracted from each.

    Source: KL in the reward: InstructGPT (arXiv 2203.02155), Section 3.5.
    """
    keys = [c.trajectory if by_trajectory else c.index for c in group.candidates]
    sums: dict[int, float] = defaultdict(float)
    for key, value in zip(keys, penalties, strict=True):
        sums[key] += value
    candidates = [
        replace(c, reward=c.reward - coef * sums[key])
        for key, c in zip(keys, group.candidates, strict=True)
    ]
    return replace(group, candidates=candidates)
