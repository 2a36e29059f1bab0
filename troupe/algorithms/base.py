"""The common base of critic-free algorithms: a sampler, a baseline, a scale, a loss.

Reads the spec's algorithm part. A subclass sets its defaults and, where they differ, its
advantages; see the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel

from troupe.algorithms.advantages import Baseline, group_relative
from troupe.algorithms.algorithm import Aggregation, GroupOutcome, LossInputs, LossOutput, Needs
from troupe.algorithms.options import Option, check_options
from troupe.samplers.joint import JointSampler
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.samplers.tree import TreeSampler

if TYPE_CHECKING:
    from troupe.spec.algorithm import AlgorithmSpec


class GroupRelative:
    """Compares each reward with the rewards of its group.

    ``sampling`` is "tree" (K candidates at every action, one observation) or "parallel" (K whole
    episodes of a task). With parallel sampling each trajectory counts once, however many turns it
    took, and each of its turns gets its trajectory's advantage.

    ``options`` names the parts of the spec that this algorithm reads beyond the common ones and
    ``required`` those it can't do without; a part that it would ignore is refused. With the option
    "joint" it draws joint actions where the spec has that part: candidates then carry returns, and
    are compared with their siblings at the node.

    ``Params``: a model of settings that no other algorithm reads, which a spec gives as
    ``algorithm: {params: ...}``; ``params`` is one of these, validated.

    ``compares_in_group``: a group of equal rewards teaches nothing. Only then may a spec redraw
    other tasks in place of such groups. ``least_candidates``: groups of fewer teach nothing.
    """

    sampling: Literal["tree", "parallel"] = "parallel"
    Params: ClassVar[type[BaseModel] | None] = None
    params: Any
    options: ClassVar[frozenset[Option]] = frozenset()
    required: ClassVar[frozenset[Option]] = frozenset()
    compares_in_group: ClassVar[bool] = True
    least_candidates: ClassVar[int] = 2
    baseline: ClassVar[Baseline] = "mean"
    scale: ClassVar[Literal["std", "none"]] = "std"
    default_aggregation: ClassVar[Aggregation] = "token"

    def __init__(self, spec: AlgorithmSpec, params: BaseModel | None = None) -> None:
        self._spec = spec
        self.params = self.Params() if params is None and self.Params else params
        check_options(spec, self.options, self.required, redraws=self.compares_in_group)

    @property
    def needs(self) -> Needs:
        """The inputs that the spec's loss reads; the whole round where groups are compared."""
        loss = self._spec.loss
        return Needs(
            whole_round=type(self).across_groups is not GroupRelative.across_groups,
            entropy=loss.entropy_coef > 0.0 or loss.adaptive_entropy is not None,
            reference=loss.kl.coef > 0.0,
            old=loss.importance is not None,
            candidates=self.least_candidates,
        )

    @property
    def aggregation(self) -> Aggregation:
        """The spec's; else "sequence" for GSPO, whose ratio is per completion; else the default."""
        if self._spec.aggregation is not None:
            return self._spec.aggregation
        return "sequence" if self._spec.loss.kind == "gspo" else self.default_aggregation

    @property
    def is_scaled(self) -> bool:
        """Whether advantages are divided by a standard deviation: per spec, else the default."""
        return (self._spec.scale or self.scale) == "std"

    def sampler(self) -> Sampler:
        """K candidates at every action or joint node, or K whole episodes of a ticket."""
        joint = self._spec.joint
        if joint is not None:
            return JointSampler(self._spec.group_size, joint.mode, joint.gamma)
        if self.sampling == "tree":
            return TreeSampler(self._spec.group_size)
        return ParallelSampler(self._spec.group_size)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Rewards relative to those of the group."""
        return self._relative(group, is_scaled=self.is_scaled)

    def _relative(self, group: GroupOutcome, *, is_scaled: bool) -> list[float]:
        keys = self._counted(group)
        rewards = {key: c.reward for key, c in zip(keys, group.candidates, strict=True)}
        scale = "std" if is_scaled else "none"
        values = group_relative(list(rewards.values()), scale, self.baseline)
        relative = dict(zip(rewards, values, strict=True))
        return [relative[key] for key in keys]

    def _counted(self, group: GroupOutcome) -> list[int]:
        """Of each candidate, what counts once: itself, or its trajectory."""
        by_candidate = self.sampling == "tree" or self._spec.joint is not None
        return [c.index if by_candidate else c.trajectory for c in group.candidates]

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """Nothing is shared between groups."""
        return list(advantages)

    def loss(self, inputs: LossInputs) -> LossOutput:
        """The spec's loss."""
        from troupe.algorithms.losses import policy_loss

        return policy_loss(inputs, self._spec.loss)
