"""AT-GRPO: K candidates at every (agent, turn), compared with their siblings only.

The members of a group share one observation, so the difference of their rewards is due to
their actions alone; the episode continues from the best.

Source: Stronger-MAS (arXiv 2510.11062), Algorithm 1 and Equations 2-4.
"""

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from troupe.algorithms.base import GroupRelative
from troupe.samplers.sampler import Sampler
from troupe.samplers.tree import TreeSampler
from troupe.spec.params import Params


class AtGrpoParams(Params):
    """How the episode goes on."""

    advance: Literal["best", "random"] = Field(
        default="best",
        description="best: from the candidate of the highest reward; random: from any of the K, "
        "which shows what best-of-K adds.",
    )


class AtGrpo(GroupRelative):
    """Tree sampling, and advantages (r - mean) / std per (task instance, agent, turn)."""

    sampling = "tree"
    Params: ClassVar[type[BaseModel] | None] = AtGrpoParams
    params: AtGrpoParams

    def sampler(self) -> Sampler:
        """K candidates at every act; goes on as ``params.advance`` says."""
        return TreeSampler(self._spec.group_size, advance=self.params.advance)
