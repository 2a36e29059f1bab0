"""The algorithm hooks: how candidates are drawn, what they were worth, and what is minimised.

The trainer is blind to algorithms: it calls these three hooks and nothing else. Advantages are
pure floats; only the loss sees tensors.
"""
# ruff: noqa: N815 (tensor names carry shape suffixes)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from troupe.samplers.contract import Sampler
    from troupe.spec.job import AlgorithmSpec


@dataclass(frozen=True, slots=True)
class CandidateOutcome:
    """What the advantage of one candidate may depend on.

    ``trajectory`` numbers the independent episode of one task that it belongs to: in a group
    that spans turns, all candidates of one trajectory carry the trajectory's reward.

    Example: ``CandidateOutcome(index=0, reward=1.25, num_tokens=9, is_truncated=False)``.
    """

    index: int
    reward: float
    num_tokens: int
    is_truncated: bool
    trajectory: int = 0


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """One group as advantages see it: K candidates of one policy, in index order."""

    group_id: str
    agent: str
    turn: int
    candidates: Sequence[CandidateOutcome]


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch, flattened over the N trained tokens of all its sequences.

    ``trainer_logprobs_N`` carries the gradient; ``rollout_logprobs_N`` are those the tokens were
    sampled with; ``advantages_N`` is the candidate's advantage on each of its tokens;
    ``entropy_N`` carries the gradient and is None unless the algorithm asks for it;
    ``sequence_N`` numbers the candidate that each token belongs to (int64).
    """

    trainer_logprobs_N: Tensor
    rollout_logprobs_N: Tensor
    advantages_N: Tensor
    sequence_N: Tensor
    entropy_N: Tensor | None


@dataclass(frozen=True, slots=True)
class LossOutput:
    """``loss_sum`` is a scalar summed over tokens: the learner divides by the global count.

    ``metric_sums`` are detached sums over tokens under their metric names.
    """

    loss_sum: Tensor
    metric_sums: dict[str, float]


class Algorithm(Protocol):
    """Three hooks. Constructed with the spec's ``algorithm`` part."""

    def __init__(self, spec: AlgorithmSpec) -> None: ...

    @property
    def needs_entropy(self) -> bool:
        """Whether the loss wants ``entropy_N`` with a gradient."""
        ...

    def sampler(self) -> Sampler:
        """How an episode's candidates are drawn and which one advances it."""
        ...

    def advantages(self, group: GroupOutcome) -> list[float]:
        """One advantage a candidate, in index order."""
        ...

    def loss(self, inputs: LossInputs) -> LossOutput:
        """The summed loss of one micro-batch."""
        ...
