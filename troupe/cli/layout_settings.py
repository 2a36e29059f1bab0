"""Turns a layout into what each way of starting Troupe is told: variables, or the chart's values.

Pure. ``troupe up`` is told how many GPUs there are and finds the same layout itself.
"""

from collections.abc import Mapping

from troupe.errors import InvalidArgumentError
from troupe.ids import is_hub_id
from troupe.spec.job import JobSpec
from troupe.spec.layout import GpuLayout
from troupe.spec.policy import teacher_name

COMPOSE_FILES = ("docker-compose.yml", "docker-compose.gpu.yml")
ONE_GPU_FILE = "docker-compose.one-gpu.yml"
EIGHT_GPU_FILE = "docker-compose.eight-gpu.yml"
EIGHT = 8
CHART = "deploy/helm/troupe"


def up_variables(layout: GpuLayout) -> dict[str, str]:
    """What ``troupe up`` is told."""
    number = f"{layout.gpu_gb:g}"
    return {"TROUPE_ROUTER_GPUS": str(layout.gpus), "TROUPE_ROUTER_GPU_GB": number}


def compose_variables(layout: GpuLayout) -> dict[str, str]:
    """What compose is told; raises InvalidArgumentError for several servers or trainers."""
    if max(len(layout.servers), len(layout.trainers)) > 1:
        raise InvalidArgumentError(
            "compose has one rollout and one trainer container, and this job has "
            f"{len(layout.servers)} pools and {len(layout.trainers)} trainers; use `troupe up` or "
            "the chart (--on up, --on chart)"
        )
    if (replicas := len(layout.servers[0].gpus)) > 1:
        raise InvalidArgumentError(
            f"compose has one rollout container, and this job asks for {replicas} replicas; "
            "ask for one, or use `troupe up` or the chart (--on up, --on chart)"
        )
    files = list[str](COMPOSE_FILES)
    if layout.is_colocated:
        files.append(ONE_GPU_FILE)
    elif layout.gpus == EIGHT:
        files.append(EIGHT_GPU_FILE)
    variables = {"COMPOSE_FILE": ":".join(files)}
    if layout.is_colocated:
        return variables | {"TROUPE_GPU": "0", "TROUPE_GPU_GB": f"{layout.gpu_gb:g}"}
    server, trainer = layout.servers[0], layout.trainers[0]
    return variables | {
        "TROUPE_ROLLOUT_GPUS": str(server.tp_size),
        "TROUPE_ROLLOUT_GPU": ",".join(map(str, server.gpus[0])),
        "TROUPE_TRAINER_GPUS": str(len(trainer.gpus)),
        "TROUPE_TRAINER_GPU": ",".join(map(str, trainer.gpus)),
    }


def chart_values(layout: GpuLayout) -> dict[str, str]:
    """``--set`` of the chart, on top of ``chart_preset``; replicas are the spec's.

    Raises InvalidArgumentError for pools whose servers need different numbers of GPUs.
    """
    if layout.is_colocated:
        return {"router.settings.gpu_gb": f"{layout.gpu_gb:g}"}
    splits = {server.tp_size for server in layout.servers}
    if len(splits) > 1:
        raise InvalidArgumentError(
            f"the pools of this job need servers of {sorted(splits)} GPUs; give the chart a "
            "rollout.pools entry for each, with its `models` and `gpus`"
        )
    return {
        "rollout.pools[0].gpus": str(splits.pop()),
        "trainer.gpus": str(len(layout.trainers[0].gpus)),
    }


def chart_downloads(spec: JobSpec) -> dict[str, str]:
    """``--set`` of the chart: the hub ids that the job names are those that it downloads."""
    values: dict[str, str] = {}
    for number, hub_id in enumerate(sorted(filter(is_hub_id, set(spec.models().values())))):
        values[f"models.download[{number}].repo"] = hub_id
        values[f"models.download[{number}].name"] = hub_id.partition("/")[2]
    return values


def chart_preset(layout: GpuLayout) -> str:
    """The file of values to begin with."""
    if layout.is_colocated:
        return f"{CHART}/values-one-gpu.yaml"
    return f"{CHART}/values-{'eight' if layout.gpus == EIGHT else 'one'}-gpu-node.yaml"


def spec_changes(layout: GpuLayout, job: JobSpec) -> dict[str, str]:
    """``--set`` of ``troupe submit``, where the router does not raise replicas itself."""
    fields = {name: f"policies.{name}.replicas" for name in job.policies}
    fields |= {teacher_name(name): f"policies.{name}.teacher_replicas" for name in job.policies}
    return {
        fields[policy]: str(len(server.gpus))
        for server in layout.servers
        for policy in server.pool.policies
        if len(server.gpus) > 1
    }


def start_lines(layout: GpuLayout, place: str, job: JobSpec, path: str) -> list[str]:
    """The commands of one way of starting ``job``, each a line of a shell; its file is ``path``."""
    if place == "up":
        return [f"{_assigned(up_variables(layout))} troupe up"]
    if place == "compose":
        return [f"{_assigned(compose_variables(layout))} docker compose up -d --build --wait"]
    values, changes = chart_values(layout) | chart_downloads(job), spec_changes(layout, job)
    lines = [
        f"helm install troupe {CHART} -f {chart_preset(layout)}{_sets(values)}",
        f"troupe submit {path}{_sets(changes)}",
    ]
    return lines if changes else lines[:1]


def _assigned(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in variables.items())


def _sets(values: Mapping[str, str]) -> str:
    return "".join(f" --set '{name}={value}'" for name, value in values.items())
