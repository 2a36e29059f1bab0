"""Which processes a job needs, with deterministic names. Pure: starts nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

from troupe.api.router.v1.router_pb2 import ReplicaKind
from troupe.runtime.launch.launcher import Component
from troupe.spec import JobSpec
from troupe.spec.layout import GpuLayout, plan_layout
from troupe.spec.pools import num_replicas, rollout_pools
from troupe.tasks.program_ends import PROGRAM_TASK
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

    layout = _layout(spec, settings)

    def component(
        service: str,
        name: str,
        *,
        traits: Mapping[str, str] | None = None,
        gpus: tuple[int, ...] = (),
        **more: str,
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
                **(_devices(gpus, settings.shown_gpus) if layout else {}),
            },
            traits=traits or {},
            defaults=_weights_by_link(service, job_id, settings),
        )

    # In a cluster the address comes from the pod's template: it may hold a password.
    redis = {} if settings.launcher == "kubernetes" else {"REDIS_URL": settings.redis_url}
    traits = {"gpus": str(spec.trainer.gpus)} if spec.trainer.gpus else {}
    ranks = {"RANKS": str(settings.trainer_gpus)} if settings.trainer_gpus else {}
    turns = {"COLOCATED": "true"} if layout and layout.is_colocated else {}
    learning = {t.policy: t.gpus for t in layout.trainers} if layout else {}
    more = {**redis, **ranks, **turns}
    processes = [
        component(
            "trainer", trainer_name(policy), traits=traits, gpus=learning.get(policy, ()), **more
        )
        for policy in wanted.trainers
    ]
    models = {pool.name: pool.model for pool in rollout_pools(spec)}
    for name, pool, gpus in _replicas(wanted, layout):
        model = {"model": models[pool]}
        more = _sglang(gpus, turns) if gpus else {}
        processes.append(component("rollout", name, traits=model, gpus=gpus, **more))
    program = _program_traits(spec)
    processes += [component("env", f"env-{i}", traits=program) for i in range(wanted.envs)]
    return processes


def _program_traits(spec: JobSpec) -> dict[str, str]:
    """Image and interpreter of an agent program that lives in an image of its own."""
    params = spec.task.params if spec.task.name == PROGRAM_TASK else {}
    if not params.get("image"):
        return {}
    python = str(params.get("python") or "python")
    return {"program_image": str(params["image"]), "program_python": python}


def _weights_by_link(service: str, job_id: str, settings: RouterSettings) -> dict[str, str]:
    """Processes of one machine hand weights over by a link to their file: no byte is copied.

    Streamed over gRPC, they cost as much processor time as a decoder's pass over the round. Another
    choice in the environment counts.
    """
    if settings.launcher != "local" or service == "env":
        return {}
    folder = settings.runs_dir.absolute() / job_id / "weights"
    store = {f"TROUPE_{service.upper()}_WEIGHTS_URL": str(folder / "store")}
    if service == "trainer":
        return store  # which it chooses for all but large full weights
    return {"TROUPE_ROLLOUT_STAGING_DIR": str(folder / "staging"), **store}


def _replicas(
    wanted: ReplicaNeeds, layout: GpuLayout | None
) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, pool and devices of each rollout."""
    seats = {server.pool.name: server.gpus for server in layout.servers} if layout else {}
    return [
        (f"rollout-{pool}-{i}", pool, seats[pool][i] if seats else ())
        for pool, count in wanted.rollouts.items()
        for i in range(count)
    ]


def _sglang(gpus: tuple[int, ...], turns: Mapping[str, str]) -> dict[str, str]:
    """Settings of a rollout that has devices."""
    more = {f"SGLANG_{name}": value for name, value in turns.items()}
    return {"ENGINE": "sglang", "SGLANG_TP_SIZE": str(len(gpus)), **more}


def _layout(spec: JobSpec, settings: RouterSettings) -> GpuLayout | None:
    """Which devices the processes get, where this router is who gives them."""
    if not settings.gpus or settings.launcher != "local":
        return None
    return plan_layout(spec, settings.gpus, settings.gpu_gb, max_replicas=num_replicas(spec))


def _devices(gpus: tuple[int, ...], shown: tuple[str, ...] | None) -> dict[str, str]:
    """Variables that show a process these devices alone.

    By the numbers of nvidia-smi, or by their places among those that the router itself is shown.
    """
    if shown is not None:
        return {"CUDA_VISIBLE_DEVICES": ",".join(shown[gpu] for gpu in gpus)}
    numbers = ",".join(map(str, gpus))
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers}


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
