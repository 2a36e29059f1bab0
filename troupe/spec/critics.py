"""The networks that the critics of a job have for themselves. Pure."""

from troupe.spec.algorithm import CriticSpec
from troupe.spec.job import JobSpec
from troupe.spec.policy import PolicySpec

TEAM = "team"
"""Name of a centralised critic."""
CENTRALISED = frozenset({"mappo"})
"""Algorithms with one critic for the team; any other's is taken to have one for each policy."""


def critic_name(owner: str) -> str:
    """The critic of ``owner``, a policy or the team, by a name that no policy can have."""
    return f"critic.{owner}"


def critic_network(critic: CriticSpec, policy: PolicySpec) -> PolicySpec:
    """The network of a critic, of kind `model`, that values the prompts of ``policy``."""
    return PolicySpec(model=critic.model or policy.model, train=critic.train, dtype=policy.dtype)


def critic_networks(spec: JobSpec) -> dict[str, PolicySpec]:
    """Each critic's network by ``critic_name``; none where critics are heads of policies."""
    critic = spec.algorithm.critic
    trained = [policy for policy in sorted(spec.policies) if spec.trains(policy)]
    if critic is None or critic.kind == "head" or not trained:
        return {}
    owners = {policy: policy for policy in trained}
    if spec.algorithm.kind in CENTRALISED:
        owners = {TEAM: trained[0]}
    return {
        critic_name(owner): critic_network(critic, spec.policies[policy])
        for owner, policy in owners.items()
    }


def can_have_trainer_each(spec: JobSpec) -> bool:
    """Whether policies that share a trainer may each have one: not with one critic for the team."""
    is_shared = len(spec.policies) > 1 and not spec.trainer.per_policy
    return is_shared and spec.algorithm.kind not in CENTRALISED
