"""Which processes a job needs, with deterministic names. Pure: starts nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.runtime.launch.launcher import Component
from troupe.spec import JobSpec
from troupe.spec.pools import rollout_pools
from troupe_router.settings import RouterSettings


@dataclass(frozen=True, slots=True)
class ReplicaNeeds:
    """How many replicas must serve before a job runs. ``rollouts`` is by pool.

    ``trainers`` are the policies that have one of their own; "" is the one of all policies.
    """

    trainers: tuple[str, ...]
    envs: int
    rollouts: dict[str, int]


def needs(spec: JobSpec, settings: RouterSettings) -> ReplicaNeeds:
    """What ``spec`` wants; without a launcher one replica of each is enough to begin."""
    pools = {pool.name: pool for pool in rollout_pools(spec)}
    if settings.launcher == "none":
        return ReplicaNeeds(spec.trainers(), 1, dict.fromkeys(pools, 1))
    rollouts = {name: pool.replicas for name, pool in pools.items()}
    return ReplicaNeeds(spec.trainers(), settings.env_replicas, rollouts)


def components(
    job_id: str, spec: JobSpec, settings: RouterSettings, *, router: str
) -> list[Component]:
    """The job's processes for a launcher; ``router`` is the address that they register at."""
    wanted = needs(spec, settings)

    def component(
        service: str, name: str, *, traits: Mapping[str, str] | None = None, **more: str
    ) -> Component:
        prefix = f"TROUPE_{service.upper()}_"
        env = {
            "ROUTER": router,
            "JOB_ID": job_id,
            "REPLICA_ID": replica_id(job_id, name),
            "LOG_LEVEL": settings.log_level,
            **more,
        }
        threads = str(settings.process_threads)
        return Component(
            name,
            f"troupe_{service}",
            {
                **{prefix + key: value for key, value in env.items()},
                "OMP_NUM_THREADS": threads,
                "PYTHONUNBUFFERED": "1",
            },
            traits=traits or {},
        )

    # In a cluster the address comes from the pod's template: it may hold a password.
    redis = {} if settings.launcher == "kubernetes" else {"REDIS_URL": settings.redis_url}
    traits = {"gpus": str(spec.trainer.gpus)} if spec.trainer.gpus else {}
    ranks = {"RANKS": str(settings.trainer_gpus)} if settings.trainer_gpus else {}
    processes = [
        component("trainer", trainer_name(policy), traits=traits, **redis, **ranks)
        for policy in wanted.trainers
    ]
    for pool, count in wanted.rollouts.items():
        model = {"model": spec.policies[pool].model}
        processes += [
            component("rollout", f"rollout-{pool}-{i}", traits=model) for i in range(count)
        ]
    processes += [component("env", f"env-{i}") for i in range(wanted.envs)]
    return processes


def replica_id(job_id: str, component: str) -> str:
    """Replica names are unique over all jobs."""
    return f"{job_id}-{component}"


def trainer_name(policy: str) -> str:
    """The component that learns ``policy``; "" is all of them."""
    return f"trainer-{policy}-0" if policy else "trainer-0"


def policy_of(replica: str, job_id: str, *, service: str = "rollout") -> str | None:
    """The policy in a launched rollout's or trainer's name, or None; a pool's is its first."""
    prefix = replica_id(job_id, f"{service}-")
    if not replica.startswith(prefix):
        return None
    return replica.removeprefix(prefix).rpartition("-")[0] or None


def kind_of(replica: str, job_id: str, spec: JobSpec) -> ReplicaKind | None:
    """The kind that a launched replica's name says; None for a name of another form."""
    name, _, number = replica.removeprefix(replica_id(job_id, "")).rpartition("-")
    if not replica.startswith(replica_id(job_id, "")) or not number.isdecimal():
        return None
    service, _, policy = name.partition("-")
    if name == "env":
        return ReplicaKind.REPLICA_KIND_ENV
    if service == "trainer" and policy in spec.trainers():
        return ReplicaKind.REPLICA_KIND_TRAINER
    is_rollout = service == "rollout" and policy in {pool.name for pool in rollout_pools(spec)}
    return ReplicaKind.REPLICA_KIND_ROLLOUT if is_rollout else None
