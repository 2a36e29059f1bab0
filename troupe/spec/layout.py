"""Which GPUs the servers and trainers of a job take, and why. Pure.

One answer for all who place processes: ``troupe plan``, the router of ``troupe up`` (which gives
each process its devices), the settings of compose and the chart's values. What the parts need is
in ``sizes``.
"""

from dataclasses import dataclass, replace

from troupe.errors import InvalidArgumentError
from troupe.spec.fit import fit_batch
from troupe.spec.issues import Issue, SpecInvalidError
from troupe.spec.job import JobSpec
from troupe.spec.memory import GB
from troupe.spec.policy import LoraSpec, teacher_name
from troupe.spec.pools import RolloutPool, rollout_pools
from troupe.spec.sizes import (
    CACHED_TOKENS,
    SERVED,
    SPLITS,
    asleep_bytes,
    fitting_ranks,
    host_bytes,
    rank_host_bytes,
    server_bytes,
    server_split,
)


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The servers of one pool: the devices of each replica, and the bytes needed on each device.

    ``peak_bytes`` is None where the model's shape is unknown.
    """

    pool: RolloutPool
    gpus: tuple[tuple[int, ...], ...]
    peak_bytes: float | None

    @property
    def tp_size(self) -> int:
        """GPUs of one server."""
        return len(self.gpus[0])


@dataclass(frozen=True, slots=True)
class TrainerPlace:
    """One trainer, of ``policy`` or ("") of all: a rank on each device. ``rank_host_bytes``: what
    each of several ranks needs of the host's memory."""

    policy: str
    gpus: tuple[int, ...]
    peak_bytes: float | None
    microbatch_tokens: int
    rank_host_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """Who sits where. ``host_bytes``: what the host keeps for who is off a shared device."""

    gpus: int
    gpu_gb: float
    servers: tuple[ServerPlace, ...]
    trainers: tuple[TrainerPlace, ...]
    cached_tokens: int
    is_colocated: bool
    host_bytes: float | None
    why: str

    @property
    def num_serving(self) -> int:
        """GPUs of all servers."""
        return sum(len(replica) for server in self.servers for replica in server.gpus)

    @property
    def num_learning(self) -> int:
        """GPUs of all trainers."""
        return sum(len(trainer.gpus) for trainer in self.trainers)


def plan_layout(
    spec: JobSpec,
    gpus: int,
    gpu_gb: float = 80.0,
    *,
    can_spread: bool = True,
    max_replicas: int | None = None,
    max_ranks: int | None = None,
) -> GpuLayout:
    """The layout of a job on ``gpus`` devices of ``gpu_gb`` GB, numbered from 0.

    On one device its server and its trainer take turns. On more, each process has devices of its
    own and all are used: what neither needs is shared so that playing and learning, which follow
    one another, end soonest. ``replicas`` and ``trainer.gpus`` of the spec are kept, replicas as
    the fewest. ``can_spread`` False: the algorithm needs a trainer of one rank. Replicas beyond
    those are added while the job has fewer than ``max_replicas``, and a trainer whose ranks are not
    set has at most ``max_ranks``.

    Raises:
        SpecInvalidError: the job can't take turns, or SGLang can't serve a policy of it.
        InvalidArgumentError: it does not fit.
    """
    if issues := served_issues(spec):
        raise SpecInvalidError(issues)
    if gpus == 1:
        return _colocated(spec, gpu_gb)
    most_ranks = gpus if spec.trainer.gpus else min(gpus, max_ranks or gpus)
    for cached in CACHED_TOKENS:
        layouts = [
            layout
            for ranks in fitting_ranks(spec, gpu_gb, most_ranks, can_spread=can_spread)
            if (layout := _separate(spec, gpus, gpu_gb, cached, ranks, max_replicas)) is not None
        ]
        if layouts:
            return min(layouts, key=_cost)
    raise InvalidArgumentError(_refusal(spec, gpus, gpu_gb, can_spread=can_spread))


def with_layout(spec: JobSpec, layout: GpuLayout) -> JobSpec:
    """The spec with the layout's replicas and ranks, for which ``plan_layout`` is the same."""
    replicas = {
        policy: len(server.gpus) for server in layout.servers for policy in server.pool.policies
    }
    policies = {
        name: policy.model_copy(
            update={
                "replicas": replicas[name],
                "teacher_replicas": replicas.get(teacher_name(name)),
            }
        )
        for name, policy in spec.policies.items()
    }
    trainer = spec.trainer.model_copy(update={"gpus": len(layout.trainers[0].gpus)})
    return spec.model_copy(update={"policies": policies, "trainer": trainer})


def seats(layout: GpuLayout) -> list[str]:
    """Who sits on which device, and what is predicted that it needs there; a line each."""
    lines: list[str] = []
    for server in layout.servers:
        for i, devices in enumerate(server.gpus):
            tp = f" (TP {server.tp_size})" if server.tp_size > 1 else ""
            what = f"rollout-{server.pool.name}-{i}: SGLang{tp}"
            takes = f"with {layout.cached_tokens:,} tokens of keys and values"
            lines.append(_seat(what, devices, server.peak_bytes, takes))
    for trainer in layout.trainers:
        what = f"trainer-{trainer.policy}-0" if trainer.policy else "trainer-0"
        ranks = f": {len(trainer.gpus)} rank{'s' if len(trainer.gpus) > 1 else ''}"
        takes = f"with micro-batches of {trainer.microbatch_tokens:,} tokens"
        if trainer.rank_host_bytes is not None:
            takes += f", and {trainer.rank_host_bytes / GB:.1f} GB of host memory a rank"
        lines.append(_seat(what + ranks, trainer.gpus, trainer.peak_bytes, takes))
    return lines


def _seat(what: str, devices: tuple[int, ...], peak_bytes: float | None, takes: str) -> str:
    on = f"GPU {','.join(map(str, devices))}"
    if peak_bytes is None:
        return f"{what} on {on}, memory unknown (the model's config.json is not at hand)"
    return f"{what} on {on}, {peak_bytes / GB:.1f} GB on each {takes}"


def served_issues(spec: JobSpec) -> list[Issue]:
    """What the servers of GPUs, which are SGLang's, can't serve."""
    why = (
        "SGLang, which serves on GPUs, applies adapters to the language model alone: leave it out, "
        "or train all weights"
    )
    return [
        Issue(f"/policies/{name}/train/vision", why)
        for name, policy in spec.policies.items()
        if isinstance(policy.train, LoraSpec) and policy.train.vision
    ]


def colocated_issues(spec: JobSpec) -> list[Issue]:
    """What a job asks for that can't be where its server and its trainer take turns."""
    issues: list[Issue] = []

    def refuse(pointer: str, why: str) -> None:
        issues.append(Issue(pointer, f"{why}; on one GPU trainer and server take turns"))

    if spec.batch.overlap:
        refuse("/batch/overlap", "can't learn while others play: set it to false, or leave it out")
    if spec.max_staleness:
        refuse("/max_staleness", "can't play the next step while this one is learnt: set it to 0")
    if spec.checkpoint.every > 1:
        why = "a restarted trainer would learn steps again while the server sleeps and games wait"
        refuse("/checkpoint/every", f"{why}: set it to 1, or leave it out")
    if (spec.trainer.gpus or 1) > 1:
        refuse("/trainer/gpus", "there is one GPU: set it to 1, or leave it out")
    if len(spec.trainers()) > 1:
        refuse("/trainer/per_policy", "one trainer can be there: set it to false")
    for name in (n for n, policy in spec.policies.items() if policy.served_teacher()):
        why = "a teacher's server has no turn: leave it out, and the trainer has the teacher"
        refuse(f"/policies/{name}/teacher_replicas", why)
    pools = [pool for pool in rollout_pools(spec) if pool.name in spec.policies]
    if len(pools) > 1:
        names = ", ".join(f"'{pool.name}'" for pool in pools)
        why = "one server can be there: train adapters of one model and dtype"
        refuse("/policies", f"the policies need a server each ({names}), and {why}")
    issues += [
        Issue(f"/policies/{name}/replicas", "one server can be on one GPU: set it to 1")
        for name, policy in spec.policies.items()
        if policy.replicas > 1
    ]
    return issues


def _separate(
    spec: JobSpec, gpus: int, gpu_gb: float, cached: int, ranks: int, max_replicas: int | None
) -> GpuLayout | None:
    """The layout with trainers of ``ranks``; None when the servers do not fit beside them."""
    names = spec.trainers()
    room = gpus - ranks * len(names)
    pools = rollout_pools(spec)
    splits: list[int] = []
    for pool in pools:
        if (split := server_split(spec, pool, gpu_gb, cached, room)) is None:
            return None
        splits.append(split[0])
    counts = [pool.replicas for pool in pools]
    if _taken(splits, counts) > room:
        return None
    _add_replicas(splits, counts, room, max_replicas)
    splits = _widened(spec, splits, counts, room)
    servers, first = _seated(spec, splits, counts, cached)
    fit = fit_batch(spec, int(gpu_gb * GB), ranks=ranks)
    tokens = fit.batch.budget
    on_host = rank_host_bytes(spec, ranks) if ranks > 1 else None
    trainers = tuple(
        TrainerPlace(name, _devices(first + i * ranks, ranks), fit.peak_bytes, tokens, on_host)
        for i, name in enumerate(names)
    )
    layout = GpuLayout(gpus, gpu_gb, servers, trainers, cached, False, 0.0, "")
    return replace(layout, why=_why(layout))


def _colocated(spec: JobSpec, gpu_gb: float) -> GpuLayout:
    if issues := colocated_issues(spec):
        raise SpecInvalidError(issues)
    [pool] = rollout_pools(spec)
    for cached in CACHED_TOKENS:
        if server := server_split(spec, pool, gpu_gb, cached, most=1):
            break
    else:
        raise InvalidArgumentError(
            f"a server of '{pool.model}' needs more than {SERVED:.0%} of one GPU of {gpu_gb:g} GB; "
            "take a smaller model, a larger GPU, or more of them (--gpus)",
            pointer="/policies",
        )
    left = gpu_gb * GB - asleep_bytes(spec)
    fit = fit_batch(spec, int(left))
    tokens = fit.batch.budget
    servers = (ServerPlace(pool, ((0,),), server[1]),)
    trainers = (TrainerPlace("", (0,), fit.peak_bytes, tokens),)
    layout = GpuLayout(1, gpu_gb, servers, trainers, cached, True, host_bytes(spec), "")
    return replace(layout, why=_why(layout))


def _taken(splits: list[int], counts: list[int]) -> int:
    return sum(split * count for split, count in zip(splits, counts, strict=True))


def _add_replicas(splits: list[int], counts: list[int], room: int, most: int | None) -> None:
    """Give each pool in turn one more replica, for as long as there is room."""
    grew = True
    while grew:
        grew = False
        for i, split in enumerate(splits):
            has_place = most is None or sum(counts) < most
            if has_place and _taken(splits, counts) + split <= room:
                counts[i] += 1
                grew = True


def _widened(spec: JobSpec, splits: list[int], counts: list[int], room: int) -> list[int]:
    """Split the servers further where replicas may not be added and devices are left."""
    widened = list(splits)
    for i, pool in enumerate(rollout_pools(spec)):
        for split in SPLITS:
            tried = [*widened[:i], split, *widened[i + 1 :]]
            can_be = server_bytes(spec, pool, 0, split) != float("inf")
            if split > widened[i] and _taken(tried, counts) <= room and can_be:
                widened = tried
    return widened


def _seated(
    spec: JobSpec, splits: list[int], counts: list[int], cached: int
) -> tuple[tuple[ServerPlace, ...], int]:
    """The servers on devices from 0 on, and the first device that is left."""
    first = 0
    servers: list[ServerPlace] = []
    for pool, split, count in zip(rollout_pools(spec), splits, counts, strict=True):
        devices = tuple(_devices(first + i * split, split) for i in range(count))
        needed = server_bytes(spec, pool, cached, split)
        servers.append(ServerPlace(replace(pool, replicas=count), devices, needed))
        first += split * count
    return tuple(servers), first


def _devices(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


def _cost(layout: GpuLayout) -> tuple[float, ...]:
    """Unused devices, then the time of a step's two phases: equal work, shared by devices."""
    serving, learning = layout.num_serving, layout.num_learning
    return layout.gpus - serving - learning, 1 / serving + 1 / learning, learning


def _why(layout: GpuLayout) -> str:
    if layout.is_colocated:
        return (
            "one GPU: the server sleeps while the trainer learns, and the trainer's weights lie in "
            "the host's memory while the server plays"
        )
    serving, learning = layout.num_serving, layout.num_learning
    unused = layout.gpus - serving - learning
    text = (
        f"{serving} for playing and {learning} for learning: the phases of a step follow one "
        "another and are taken to cost a token the same, so the GPUs are shared as evenly as the "
        "fewest of each, powers of two for ranks and whole servers allow"
    )
    return text + (f"; {unused} unused, for no process can have them" if unused else "")


def _refusal(spec: JobSpec, gpus: int, gpu_gb: float, *, can_spread: bool) -> str:
    ranks = next(fitting_ranks(spec, gpu_gb, SPLITS[-1], can_spread=can_spread), None)
    if ranks is None:
        fit_batch(spec, int(gpu_gb * GB), ranks=spec.trainer.gpus or SPLITS[-1])  # says why
        return f"no trainer of one rank fits a GPU of {gpu_gb:g} GB, and this job's can't have more"
    splits = [
        split[0] if (split := server_split(spec, pool, gpu_gb, CACHED_TOKENS[-1])) else None
        for pool in rollout_pools(spec)
    ]
    words = " + ".join("too many" if split is None else str(split) for split in splits)
    replicas = max(pool.replicas for pool in rollout_pools(spec))
    times = f" (times {replicas} replicas)" if replicas > 1 else ""
    return (
        f"the job does not fit {gpus} GPUs of {gpu_gb:g} GB: its servers need {words}{times} and "
        f"its {len(spec.trainers())} trainer(s) {ranks} each; give more GPUs (--gpus), ask for "
        "fewer replicas or trainer.gpus, or train adapters of one model, which share a server"
    )
