"""On-policy distillation: the policy's own samples, judged token by token by a frozen teacher.

The teacher is ``PolicySpec.teacher``. Rewards are measured and, unless ``params.reward_coef`` is
above 0, not learnt from, so a group may have one candidate.

Source: GKD (arXiv 2306.13649); "On-Policy Distillation" (Thinking Machines Lab, 2025);
as a recipe for small models: Qwen3 (arXiv 2505.09388), Section 4.5. The formula is in
``losses.distillation``.
"""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from troupe.algorithms.algorithm import GroupOutcome, LossInputs, LossOutput, Needs
from troupe.algorithms.base import GroupRelative
from troupe.spec.algorithm import AlgorithmSpec
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.params import Params


class DistillParams(Params):
    """What is drawn, and what rewards count."""

    sampling: Literal["tree", "parallel"] = Field(
        default="parallel", description="K whole episodes of a task, or K candidates at every act."
    )
    reward_coef: float = Field(
        default=0.0,
        ge=0.0,
        description="Weight of the advantage of a candidate's reward in its group, added to each "
        "of its tokens; 0: rewards are not learnt from.",
    )


class Distill(GroupRelative):
    """Advantages by token, log pi_teacher - log pi, and on demand those of the rewards."""

    Params: ClassVar[type[BaseModel] | None] = DistillParams
    params: DistillParams
    compares_in_group = False

    def __init__(self, spec: AlgorithmSpec, params: BaseModel | None = None) -> None:
        super().__init__(spec, params)
        self.sampling = self.params.sampling
        issues: list[Issue] = []
        if spec.filters.zero_variance:
            message = "'distill' learns from each token, whatever its group earned; leave it out"
            issues.append(Issue("/algorithm/filters/zero_variance", message))
        ignored = {
            "/algorithm/scale": spec.scale is not None,
            "/algorithm/overlong": spec.overlong is not None,
            "/algorithm/loss/kl/where": spec.loss.kl.coef > 0 and spec.loss.kl.where == "reward",
        }
        if not self.params.reward_coef:
            message = "rewards are not learnt from; leave it out, or give params.reward_coef"
            issues += [Issue(pointer, message) for pointer, is_given in ignored.items() if is_given]
        if issues:
            raise SpecInvalidError(issues)

    @property
    def needs(self) -> Needs:
        """The teacher; groups of one candidate will do where rewards are not compared."""
        least = 2 if self.params.reward_coef else 1
        return replace(super().needs, teacher=True, candidates=least)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """Those of the rewards, where they count; the teacher's are by token, in the loss."""
        if not self.params.reward_coef:
            return [0.0] * len(group.candidates)
        return super().advantages(group)

    def loss(self, inputs: LossInputs) -> LossOutput:
        """The spec's loss, under the teacher's advantages."""
        from troupe.algorithms.losses.distillation import distillation_loss

        return distillation_loss(inputs, self._spec.loss, self.params.reward_coef)
