"""Which rollout pools a job makes: what shares one inference server. Pure.

LoRA policies of one base and number format share the replicas of one pool: a server holds the base
once and an adapter for each of them. A policy that trains all weights has a pool of its own. The
router, its launchers, the engine and ``troupe plan`` all ask here.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from troupe.spec.policy import LoraSpec, PolicySpec

if TYPE_CHECKING:
    from troupe.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class RolloutPool:
    """Replicas that are alike: each serves all ``policies``, in the order of the spec.

    ``name`` is that of the first policy; the pool's processes are ``rollout-<name>-<number>``.

    Example: ``RolloutPool("coder", ("coder", "tester"), "Qwen/Qwen3-8B", "bfloat16", 1)``.
    """

    name: str
    policies: tuple[str, ...]
    model: str
    dtype: str
    replicas: int

    def __str__(self) -> str:
        """What it is, for people."""
        if len(self.policies) == 1:
            return f"rollout of policy '{self.name}'"
        names = ", ".join(f"'{name}'" for name in self.policies)
        return f"rollout of policies {names}"


def rollout_pools(spec: "JobSpec") -> tuple[RolloutPool, ...]:
    """The pools of a job, in the order of its policies.

    A pool has as many replicas as the policy of it that asks for most. A teacher that is served is
    one more policy here, with an adapter that changes nothing.
    """
    served = spec.served()
    groups = [(name,) for name in served] if spec.rollout.per_policy else sharing(served)
    return tuple(_pool(names, served) for names in groups)


def sharing(policies: Mapping[str, PolicySpec]) -> list[tuple[str, ...]]:
    """The policies by the server that they can share."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, policy in policies.items():
        alone = () if isinstance(policy.train, LoraSpec) else (name,)
        groups.setdefault((policy.model, policy.dtype, *alone), []).append(name)
    return [tuple(names) for names in groups.values()]


def pool_of(spec: "JobSpec", policy: str) -> RolloutPool:
    """The pool that serves ``policy``; raises KeyError for an unknown one."""
    pools = {name: pool for pool in rollout_pools(spec) for name in pool.policies}
    return pools[policy]


def num_replicas(spec: "JobSpec") -> int:
    """Rollout replicas of all pools."""
    return sum(pool.replicas for pool in rollout_pools(spec))


def num_serving(pool: RolloutPool, replicas: Iterable[Collection[str]]) -> int:
    """How many of ``replicas``, each given by the policies that it serves, serve the whole pool."""
    return sum(all(name in served for name in pool.policies) for served in replicas)


def _pool(names: tuple[str, ...], policies: Mapping[str, PolicySpec]) -> RolloutPool:
    first = policies[names[0]]
    replicas = max(policies[name].replicas for name in names)
    return RolloutPool(names[0], names, first.model, first.dtype, replicas)
