"""IPPO and MAPPO: PPO with a critic, over the turns of each agent.

An action is a whole completion, so a value belongs to a prompt: the expected return from this act
on. IPPO's critic belongs to a policy and reads the agent's own prompt; MAPPO's is one for the
team and reads what all agents see. Either way the actors act on their own prompts alone.

The advantages of a step are whitened, as PPO's usually are; ``scale: none`` leaves them alone.

Source: PPO (arXiv 1707.06347); GAE (arXiv 1506.02438); IPPO (arXiv 2011.09533); MAPPO (arXiv
2103.01955), Section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from troupe.algorithms.advantages import whitened
from troupe.algorithms.algorithm import GroupOutcome, Needs
from troupe.algorithms.base import GroupRelative
from troupe.algorithms.gae import gae_of_group
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.algorithm import AlgorithmSpec, CriticSpec
from troupe.spec.issues import Issue, SpecInvalidError


class Ippo(GroupRelative):
    """K episodes; GAE over an agent's turns with a critic that reads the agent's own prompt."""

    options = frozenset({"critic"})
    required = frozenset({"critic"})
    compares_in_group = False
    least_candidates = 1
    view: ClassVar[Literal["own", "joint"]] = "own"

    def __init__(self, spec: AlgorithmSpec) -> None:
        super().__init__(spec)
        if spec.critic is not None and (issues := _issues(spec.critic, self.view)):
            raise SpecInvalidError(issues)

    @property
    def needs(self) -> Needs:
        """The loss's inputs, and a critic's values."""
        return replace(super().needs, values=self.view)

    def sampler(self) -> Sampler:
        """K whole episodes of a ticket, rewards by turn."""
        is_joint = self.view == "joint"
        return ParallelSampler(self._spec.group_size, grouping="turns", sees_jointly=is_joint)

    def advantages(self, group: GroupOutcome) -> list[float]:
        """GAE over the turns of each trajectory; the critic's target is value plus advantage."""
        critic = self._spec.critic
        assert critic is not None, "checked when the algorithm was made"
        values = [candidate.value for candidate in group.candidates]
        return gae_of_group(group, values, critic.gamma, critic.gae_lambda)

    def across_groups(
        self, groups: Sequence[GroupOutcome], advantages: Sequence[list[float]]
    ) -> list[list[float]]:
        """Whitened over the step, unless ``scale`` is none."""
        return whitened(advantages) if self.is_scaled else list(advantages)


class Mappo(Ippo):
    """Ippo with one centralised critic, a network of its own, on what all agents see."""

    view = "joint"


def _issues(critic: CriticSpec, view: Literal["own", "joint"]) -> list[Issue]:
    """Settings of a critic that reads ``view`` which nothing would read."""
    if view == "joint" and critic.kind == "head":
        message = "a team's critic is no head of any one policy; use kind model, or ippo"
        return [Issue("/algorithm/critic/kind", message)]
    default = CriticSpec()
    of_head = (
        "a head reads the policy's own network and trains none; leave it out, or use kind model"
    )
    ignored = {
        "model": (critic.kind == "head" and critic.model is not None, of_head),
        "train": (critic.kind == "head" and critic.train != default.train, of_head),
        "train/vision": (
            critic.kind == "model" and critic.train.vision,
            "a critic reads text alone; leave it out",
        ),
        "max_tokens": (
            view == "own" and critic.max_tokens != default.max_tokens,
            "ippo's critic reads the agent's whole prompt; leave it out, or use mappo",
        ),
    }
    return [
        Issue(f"/algorithm/critic/{name}", why)
        for name, (is_given, why) in ignored.items()
        if is_given
    ]
