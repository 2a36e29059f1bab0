"""The algorithm hooks: how to draw candidates, what they are worth, and which loss to minimise.

The trainer knows no algorithm: it calls these three hooks and nothing else. Advantages are
pure floats; only the loss sees tensors.
"""
# ruff: noqa: N815 (tensor names carry shape suffixes)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from troupe.candidates import GroupOutcome as GroupOutcome
from troupe.code_places import defined_at, raised_at
from troupe.errors import InvalidArgumentError
from troupe.finite import is_finite
from troupe.runtime.transient import is_of_code

if TYPE_CHECKING:
    from torch import Tensor

    from troupe.samplers.sampler import Sampler
    from troupe.spec.algorithm import AlgorithmSpec


Aggregation = Literal["token", "sequence", "sequence_sum"]
"""How a minibatch's loss is averaged: over tokens; over completions, of their token means; over
completions, of their token sums."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an algorithm reads beyond rewards and the log probabilities of trainer and rollout.

    For the loss: ``entropy``, and ``reference``, ``teacher`` (of the policy's spec) and ``old``,
    which cost a forward pass each before the step's first update. For the advantages: ``values`` of
    a critic, which reads the agent's "own" prompt or, as one critic for the team, what all agents
    see ("joint"); ``log_ratios`` of completions, policy to reference; ``terms`` of the rewards of
    groups by observation or task, and their weights. ``team``: ``across_groups`` gets the groups of
    all policies at once. ``whole_round``: a group's advantages may depend on other groups of the
    step; without, a trainer may ask for them while the other tickets are still being played.
    ``candidates``: the fewest that a group may have.
    """

    entropy: bool = False
    reference: bool = False
    teacher: bool = False
    old: bool = False
    values: Literal["own", "joint"] | None = None
    log_ratios: bool = False
    terms: bool = False
    team: bool = False
    whole_round: bool = True
    candidates: int = 2


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch, flattened over the N trained tokens of all its sequences.

    ``trainer_logprobs_N`` carries the gradient; ``rollout_logprobs_N`` are those that the tokens
    were sampled with; ``advantages_N`` is the candidate's advantage on each of its tokens;
    ``entropy_N`` carries the gradient and is None unless the algorithm asks for it, like
    ``old_logprobs_N`` (the trainer's own at the beginning of the step), ``ref_logprobs_N`` (the
    reference's) and ``teacher_logprobs_N`` (the teacher's); ``sequence_N`` numbers the candidate
    that each token belongs to (int64);
    ``weights_N`` is the weight of a token's loss (1, or 1 / length where completions are averaged).
    ``kl_coef`` and ``entropy_coef`` are those of this step; None: the spec's.
    """

    trainer_logprobs_N: Tensor
    rollout_logprobs_N: Tensor
    advantages_N: Tensor
    sequence_N: Tensor
    weights_N: Tensor
    entropy_N: Tensor | None = None
    old_logprobs_N: Tensor | None = None
    ref_logprobs_N: Tensor | None = None
    teacher_logprobs_N: Tensor | None = None
    kl_coef: float | None = None
    entropy_coef: float | None = None


@dataclass(frozen=True, slots=True)
class LossOutput:
    """``loss_sum`` is a scalar, weighted and summed over tokens: the learner divides it by the
    minibatch's number of tokens or completions, so it does not depend on the micro-batches.

    ``metric_sums`` are detached sums over tokens, unweighted, under their metric names.
    """

    loss_sum: Tensor
    metric_sums: dict[str, float]


class Algorithm(Protocol):
    """Hooks. Constructed with the spec's ``algorithm`` part; ``GroupRelative`` is a good base."""

    def __init__(self, spec: AlgorithmSpec) -> None: ...

    @property
    def needs(self) -> Needs:
        """The inputs that the algorithm reads."""
        ...

    @property
    def aggregation(self) -> Aggregation:
        """How the loss is averaged over a minibatch."""
        ...

    def sampler(self) -> Sampler:
        """How an episode's candidates are drawn and which one advances it."""
        ...

    def advantages(self, group: GroupOutcome) -> list[float]:
        """One advantage per candidate, in index order."""
        ...

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """The step's advantages after operations across its groups, such as whitening."""
        ...

    def loss(self, inputs: LossInputs) -> LossOutput:
        """The summed loss of one micro-batch."""
        ...


def has_own_loss(algorithm: Algorithm) -> bool:
    """Whether its loss is not one of Troupe's, so that it may have a gradient without advantages.

    All of Troupe's are 0 there, but for their terms of entropy and KL.
    """
    return not type(algorithm).loss.__module__.startswith("troupe.algorithms.")


def advantages_of_group(algorithm: Algorithm, group: GroupOutcome) -> list[float]:
    """The advantages of ``group`` alone; raises InvalidArgumentError as `advantages_of_step`."""
    return _called(algorithm, "advantages", [group], group)[0]


def advantages_of_step(algorithm: Algorithm, groups: Sequence[GroupOutcome]) -> list[list[float]]:
    """One list per group: first each group alone, then all together. ``groups`` are those of one
    policy, or with ``needs.team`` those of all policies of the step.

    Raises InvalidArgumentError where the algorithm's code raises, or does not give one finite
    number for each candidate. What is made of a critic's or a reference's NaN is not its fault.
    """
    alone = [advantages_of_group(algorithm, group) for group in groups]
    return _called(algorithm, "across_groups", groups, groups, alone)


def _called(
    algorithm: Algorithm,
    hook: Literal["advantages", "across_groups"],
    groups: Sequence[GroupOutcome],
    *arguments: object,
) -> list[list[float]]:
    """What a hook gives for each of ``groups``, checked: its code may be a user's."""

    def wrong(problem: str) -> InvalidArgumentError:
        return InvalidArgumentError(hook_gave(algorithm, hook, problem))

    try:
        answer = getattr(algorithm, hook)(*arguments)
        given = [list(values) for values in ([answer] if hook == "advantages" else answer)]
    except (Exception, SystemExit) as error:  # the latter would end the process
        if not is_of_code(error):
            raise
        raise InvalidArgumentError(hook_raised(algorithm, hook, error)) from error
    if len(given) != len(groups):
        raise wrong(f"{len(given)} lists for {len(groups)} groups; give one list a group")
    for group, values in zip(groups, given, strict=True):
        size, name = len(group.candidates), group.group_id
        if len(values) != size:
            counts = f"{len(values)} advantages for the {size} candidates of group {name}"
            raise wrong(f"{counts}; give one a candidate")
        for value in values:
            if not is_finite(value) and _has_finite_inputs(group):
                raise wrong(f"{value!r} in group {name}; give a finite number a candidate")
    return [list(map(float, values)) for values in given]


def hook_raised(algorithm: Algorithm, hook: str, error: BaseException) -> str:
    """The sentence about ``error``, which the code of ``hook`` raised: it names the line."""
    place = raised_at(error) or defined_at(_written(algorithm, hook))
    at = f" (at {place})" if place else ""
    name = type(algorithm).__name__
    return (
        f"algorithm '{name}': {hook} raised {type(error).__name__}: {error}{at}. Correct the "
        "algorithm"
    )


def hook_gave(algorithm: Algorithm, hook: str, what: str) -> str:
    """The sentence about an answer of ``hook`` that can't be used: ``what``, and what to give."""
    place = defined_at(_written(algorithm, hook))
    at = f" (at {place})" if place else ""
    return f"algorithm '{type(algorithm).__name__}': {hook}{at} gave {what}"


def _written(algorithm: Algorithm, hook: str) -> object:
    """The function behind a method or a property, which is not called."""
    written = getattr(type(algorithm), hook, None)
    return written.fget if isinstance(written, property) else written


def _has_finite_inputs(group: GroupOutcome) -> bool:
    return all(
        is_finite(number)
        for sample in group.candidates
        for number in (sample.reward, sample.value, sample.log_ratio)
    )


def advantages_by_policy(
    algorithm: Algorithm, groups: Mapping[str, Sequence[GroupOutcome]]
) -> dict[str, list[list[float]]]:
    """The step's advantages of every policy, together where the algorithm sees the whole team."""
    if not algorithm.needs.team:
        return {
            policy: advantages_of_step(algorithm, policy_groups)
            for policy, policy_groups in groups.items()
        }
    team = [group for policy_groups in groups.values() for group in policy_groups]
    advantages = iter(advantages_of_step(algorithm, team))
    return {
        policy: [next(advantages) for _ in policy_groups]
        for policy, policy_groups in groups.items()
    }


def credits_by_ticket(algorithm: Algorithm, spec: AlgorithmSpec) -> bool:
    """Whether a ticket's advantages are the same before the step's other tickets are played.

    Not so, beside ``needs.whole_round``, where a critic or a reference computes what they are made
    of (in passes over the whole step, whose rounding depends on it), or where state is kept.
    """
    needs, kl = algorithm.needs, spec.loss.kl
    is_taxed = kl.coef > 0.0 and kl.where == "reward"
    needs_round = needs.whole_round or needs.team or needs.log_ratios or needs.values is not None
    return not (needs_round or is_taxed or isinstance(algorithm, Remembering))


@runtime_checkable
class Remembering(Protocol):
    """An algorithm that keeps state from step to step, such as a running baseline.

    The trainer checkpoints the state, so a resumed job continues with the same numbers.
    """

    def baselines(self) -> Mapping[str, Any]:
        """The state, as JSON values."""
        ...

    def restore_baselines(self, baselines: Mapping[str, Any]) -> None:
        """Restore what ``baselines`` returned; an empty mapping resets the state."""
        ...
