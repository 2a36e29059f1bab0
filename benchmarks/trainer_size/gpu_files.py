"""Every trainer that an example, a compose or values file or `troupe init` gives GPUs.

Found by what files give, not by a list. tests/contract/test_gpu_files.py holds each against the
prediction, servers and the host's memory too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from troupe.cli.starter import starter_spec
from troupe.spec import JobSpec, load_spec, parse_spec
from troupe.spec.fit import fit_batch
from troupe.spec.layout import plan_layout
from troupe.spec.memory import GB, decoder_shape

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
COMPOSE = sorted(ROOT.glob("docker-compose*.y*ml"))
VALUES = sorted((ROOT / "deploy").rglob("values*.y*ml"))
TRAINS_ON = re.compile(r"^# Trains on a GPU of (\d+) GB", re.MULTILINE)
SIZED_FOR = re.compile(r"^# Sized for GPUs of (\d+) GB: (\S.*\S)$", re.MULTILINE)
SMALL = 500_000_000
"""A model of fewer parameters is trained on a CPU here."""
_DEFAULT = re.compile(r"\$\{\w+(?::-([^}]*))?\}")


def compose_of(path: Path) -> Any:
    """A compose file as docker compose reads it where no variable is set."""
    return yaml.safe_load(_DEFAULT.sub(lambda m: m[1] or "", path.read_text("utf-8")))


def gives_gpus(document: Any) -> bool:
    """Whether a compose or values file gives a process a GPU, under whatever key."""
    if isinstance(document, list):
        return any(map(gives_gpus, document))
    if not isinstance(document, dict):
        return False
    for key, value in document.items():
        name = str(key).lower()
        is_count = name.endswith("gpus") and str(value).isdigit() and int(value) > 0
        is_device = name == "capabilities" and "gpu" in str(value)
        if is_count or is_device or name == "cuda_visible_devices" or gives_gpus(value):
            return True
    return False


def needs_a_gpu(spec: JobSpec) -> bool:
    """Whether a policy's model is too large for a CPU, or not known at all."""
    for policy in spec.policies.values():
        shape = decoder_shape(policy.model)
        if policy.model.startswith("models/") and shape is None:
            continue  # made or fetched here by `troupe model`, and small
        if shape is None or shape.num_parameters() > SMALL:
            return True
    return False


def sized_for(path: Path) -> tuple[int, list[str]]:
    """The size of a GPU in GB and the models that a file's comment names."""
    named = SIZED_FOR.search(path.read_text("utf-8"))
    assert named, f"{path.name} gives GPUs: say `# Sized for GPUs of N GB: MODEL, MODEL`"
    return int(named[1]), named[2].split(", ")


def starters(model: str) -> Iterator[JobSpec]:
    """What `troupe init` writes for a model: one adapter for the team, and one for each agent."""
    for sharing in ("shared", "each"):
        document = starter_spec("math", model=model, sharing=sharing)
        yield parse_spec(document, source=model)


@dataclass(frozen=True)
class Placement:
    """A job's trainers on ``gpus`` GPUs of ``gpu_gb`` GB each; ``is_shared``: on one GPU, in turns
    with the server."""

    name: str
    spec: JobSpec
    gpu_gb: int
    gpus: int
    is_shared: bool = False

    def trainer_share(self) -> float:
        """The predicted share of each GPU; raises InvalidArgumentError where it doesn't fit."""
        if self.is_shared:
            peaks = [place.peak_bytes for place in plan_layout(self.spec, 1, self.gpu_gb).trainers]
        else:
            peaks = [fit_batch(self.spec, self.gpu_gb * GB, ranks=self.gpus).peak_bytes]
        assert all(peaks), "give the shape of this model to troupe/spec/memory.py"
        return max(peak for peak in peaks if peak) / (self.gpu_gb * GB)


def placements() -> Iterator[Placement]:
    """All of them."""
    for path in EXAMPLES:
        if size := TRAINS_ON.search(path.read_text("utf-8")):
            spec = load_spec(path)
            yield Placement(_name(path), spec, int(size[1]), spec.trainer.gpus or 1)
    for path in COMPOSE:
        if gives_gpus(compose_of(path)):
            env = compose_of(path)["services"]["trainer"]["environment"]
            shared = env.get("TROUPE_TRAINER_COLOCATED") == "true"
            gpus = 1 if shared else int(env["TROUPE_TRAINER_RANKS"])
            yield from _started(path, gpus, shared=shared)
    for path in VALUES:
        values = yaml.safe_load(path.read_text("utf-8"))
        if gives_gpus(values):
            shared = bool(values["trainer"].get("settings", {}).get("colocated"))
            yield from _started(path, values["trainer"]["gpus"], shared=shared)
    for sharing in ("shared", "each"):
        spec = parse_spec(starter_spec("math", sharing=sharing), source="init")
        yield Placement(f"troupe init: {sharing}", spec, 24, 1)


def _started(path: Path, gpus: int, *, shared: bool) -> Iterator[Placement]:
    gpu_gb, models = sized_for(path)
    for model in models:
        for spec in starters(model):
            yield Placement(f"{_name(path)}: {model}", spec, gpu_gb, gpus, shared)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def pool_of(pools: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """The first whose patterns take the model, as the chart chooses."""
    return next(
        pool
        for pool in pools
        if not pool.get("models") or any(fnmatchcase(model, word) for word in pool["models"])
    )
