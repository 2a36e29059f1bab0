"""Best-of-K imitation: the best candidate of each group is learnt, the others are not.

The trained loss is the negative log likelihood of the best candidates, divided by the tokens of
all K: rejection sampling and fine-tuning in one loop, strictly on-policy. What it gains is what
best-of-K selection gives alone, without any comparison of better with worse, so it is the baseline
of the tree. ``entropy_coef`` has no effect.

Source: RAFT (arXiv 2304.06767), Algorithm 1, with every step's own samples.
"""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from troupe.algorithms.advantages import ZERO_STD, sample_std
from troupe.algorithms.algorithm import GroupOutcome, LossInputs, LossOutput, Needs
from troupe.algorithms.base import GroupRelative
from troupe.spec.algorithm import AlgorithmSpec, KlSpec, LossSpec
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.params import Params


class BestOfKParams(Params):
    """What is drawn."""

    sampling: Literal["tree", "parallel"] = Field(
        default="tree", description="K candidates at every act, or K whole episodes of a task."
    )


class BestOfK(GroupRelative):
    """1 on the best of a group, divided among equals; 0 on the others and on flat groups.

    Example: rewards 2, 5, 5 and 1 give 0, 1/2, 1/2 and 0.
    """

    Params: ClassVar[type[BaseModel] | None] = BestOfKParams
    params: BestOfKParams

    def __init__(self, spec: AlgorithmSpec, params: BaseModel | None = None) -> None:
        super().__init__(spec, params)
        self.sampling = self.params.sampling
        _refuse_ignored(spec)

    @property
    def needs(self) -> Needs:
        """No entropy: its loss has no such term, so flat groups have no gradient."""
        return replace(super().needs, entropy=False)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Of whole episodes, every turn of the best trajectory gets its share.

        Where ``filters.truncated`` leaves candidates out, the best is one of those that stay.
        """
        keys = self._counted(group)
        rewards = {key: c.reward for key, c in zip(keys, group.candidates, strict=True)}
        if sample_std(list(rewards.values())) < ZERO_STD:
            return [0.0] * len(keys)
        is_filtered = self._spec.filters.truncated
        stay = {
            key
            for key, c in zip(keys, group.candidates, strict=True)
            if not (is_filtered and c.is_truncated)
        }
        most = max((rewards[key] for key in stay), default=0.0)
        best = {key for key in stay if most - rewards[key] < ZERO_STD}
        return [1.0 / len(best) if key in best else 0.0 for key in keys]

    def loss(self, inputs: LossInputs) -> LossOutput:
        """-log pi of the best candidates."""
        from troupe.algorithms.losses import policy_gradient

        return policy_gradient(inputs)


def _refuse_ignored(spec: AlgorithmSpec) -> None:
    """Raise SpecInvalidError for settings of the loss that nothing would read."""
    loss, issues = spec.loss, list[Issue]()
    why = "best_of_k's loss is the likelihood alone; "
    plain, default = loss.model_copy(update={"entropy_coef": 0.0, "kl": KlSpec()}), LossSpec()
    for name in LossSpec.model_fields:
        if getattr(plain, name) != getattr(default, name):
            also = ", and max_staleness with it" if name == "importance" else ""
            issues.append(Issue(f"/algorithm/loss/{name}", f"{why}leave {name} out{also}"))
    if spec.scale == "std":
        issues.append(Issue("/algorithm/scale", f"{why}leave scale out, or say none"))
    if loss.kl.coef > 0.0 and loss.kl.where == "loss":
        issues.append(Issue("/algorithm/loss/kl/where", f"{why}use `where: reward`"))
    if loss.kl.adaptive is not None:
        message = f"{why}it measures no KL to the reference; leave it out"
        issues.append(Issue("/algorithm/loss/kl/adaptive", message))
    if issues:
        raise SpecInvalidError(issues)
