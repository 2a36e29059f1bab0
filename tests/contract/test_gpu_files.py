"""Every file that gives a job GPUs says how large they are and for which models, and both fit.

Found by what they give, not by a list: a new example, compose file or values file that names a GPU
and is not held against the prediction fails here.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.trainer_size.gpu_files import (
    COMPOSE,
    EXAMPLES,
    ROOT,
    TRAINS_ON,
    VALUES,
    compose_of,
    gives_gpus,
    needs_a_gpu,
    placements,
    pool_of,
    sized_for,
    starters,
)
from troupe.errors import InvalidArgumentError
from troupe.spec import JobSpec, load_spec
from troupe.spec.fit import fit_batch
from troupe.spec.layout import plan_layout
from troupe.spec.memory import GB, USABLE
from troupe.spec.pools import rollout_pools
from troupe.spec.sizes import CACHED_TOKENS, SERVED, host_bytes, server_bytes


def check_trainer(spec: JobSpec, gpu_gb: int, gpus: int) -> None:
    """The trainer takes at most 90 % of each of its GPUs."""
    fit = fit_batch(spec, gpu_gb * GB, ranks=gpus)
    assert fit.peak_bytes is not None, "give the shape of this model to troupe/spec/memory.py"
    assert fit.peak_bytes <= USABLE * gpu_gb * GB


def check_server(spec: JobSpec, gpu_gb: int, gpus: int) -> None:
    """Each server takes at most its share of each of its GPUs, with room for some contexts."""
    for pool in rollout_pools(spec):
        needed = server_bytes(spec, pool, CACHED_TOKENS[-1], gpus)
        assert needed is not None and needed <= SERVED * gpu_gb * GB, pool.model


def check_both(spec: JobSpec, gpu_gb: int, server_gpus: int, trainer_gpus: int) -> None:
    check_server(spec, gpu_gb, server_gpus)
    check_trainer(spec, gpu_gb, trainer_gpus)


def check_turns(spec: JobSpec, gpu_gb: int, host_gb: float) -> None:
    """Server and trainer take turns on one GPU, and the host has room for who is off it."""
    layout = plan_layout(spec, 1, gpu_gb)
    for place in (*layout.servers, *layout.trainers):
        assert place.peak_bytes is not None and place.peak_bytes <= USABLE * gpu_gb * GB
    kept = host_bytes(spec)
    assert kept is not None and kept <= host_gb * GB


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_example_when_its_model_needs_a_gpu_then_it_names_one_and_fits_it(path: Path) -> None:
    document = yaml.safe_load(path.read_text("utf-8"))
    if not isinstance(document, dict) or "policies" not in document:
        return  # no job
    named = TRAINS_ON.search(path.read_text("utf-8"))
    spec = load_spec(path)
    assert (named is not None) == needs_a_gpu(spec), "say on which GPU it trains, or that on none"
    if named is not None:
        check_trainer(spec, int(named[1]), spec.trainer.gpus or 1)


@pytest.mark.parametrize("path", [p for p in COMPOSE if gives_gpus(compose_of(p))], ids=str)
def test_compose_file_when_it_gives_gpus_then_the_models_it_names_fit_them(path: Path) -> None:
    gpu_gb, models = sized_for(path)
    services = compose_of(path)["services"]
    env = {name: service.get("environment", {}) for name, service in services.items()}
    for spec in (spec for model in models for spec in starters(model)):
        if env["trainer"].get("TROUPE_TRAINER_COLOCATED") == "true":
            assert float(env["router"]["TROUPE_ROUTER_GPU_GB"]) == gpu_gb
            limits = compose_of(ROOT / "docker-compose.gpu.yml")["services"]
            host_gb = sum(
                int(limits[name]["mem_limit"].rstrip("g")) for name in ("rollout", "trainer")
            )
            check_turns(spec, gpu_gb, host_gb)
            continue
        tp = int(env["rollout"]["TROUPE_ROLLOUT_SGLANG_TP_SIZE"])
        check_both(spec, gpu_gb, tp, int(env["trainer"]["TROUPE_TRAINER_RANKS"]))


@pytest.mark.parametrize(
    "path", [p for p in VALUES if gives_gpus(yaml.safe_load(p.read_text("utf-8")))], ids=str
)
def test_values_file_when_it_gives_gpus_then_the_models_it_downloads_fit_them(path: Path) -> None:
    gpu_gb, models = sized_for(path)
    values = yaml.safe_load(path.read_text("utf-8"))
    assert models == [entry["repo"] for entry in values["models"]["download"]]
    assert values.get("router", {}).get("settings", {}).get("gpu_gb", gpu_gb) == gpu_gb
    for model in models:
        pool = pool_of(values["rollout"]["pools"], model)
        for spec in starters(model):
            if values["trainer"].get("settings", {}).get("colocated"):
                limits = (pool, values["trainer"])
                host_gb = sum(_gib(part["resources"]["limits"]["memory"]) for part in limits)
                check_turns(spec, gpu_gb, host_gb)
            else:
                check_both(spec, gpu_gb, pool["gpus"], values["trainer"]["gpus"])


def _gib(text: str) -> float:
    return int(text.removesuffix("Gi")) * 2**30 / GB


def test_files_that_give_gpus_when_listed_then_those_that_are_known_are_among_them() -> None:
    compose = {p.name for p in COMPOSE if gives_gpus(compose_of(p))}
    values = {p.name for p in VALUES if gives_gpus(yaml.safe_load(p.read_text("utf-8")))}
    assert compose == {f"docker-compose.{name}.yml" for name in ("gpu", "one-gpu", "eight-gpu")}
    kinds = ("multi-node", "one-gpu-node", "one-gpu", "eight-gpu-node")
    assert values == {f"values-{kind}.yaml" for kind in kinds}
    assert sum(bool(TRAINS_ON.search(p.read_text("utf-8"))) for p in EXAMPLES) >= 20


@pytest.mark.parametrize(
    "document",
    [
        {"trainer": {"gpus": 1}},
        {"rollout": {"pools": [{"name": "x", "gpus": 2}]}},
        {"services": {"a": {"environment": {"CUDA_VISIBLE_DEVICES": "0"}}}},
        {"services": {"a": {"deploy": {"devices": [{"capabilities": ["gpu"]}]}}}},
        {"services": {"router": {"environment": {"TROUPE_ROUTER_GPUS": "2"}}}},
    ],
)
def test_file_when_it_gives_a_gpu_under_any_key_then_it_is_seen(document: Any) -> None:
    assert gives_gpus(document)
    assert not gives_gpus({"trainer": {"gpus": 0}, "rollout": {"pools": [{"gpus": 0}]}})


def test_models_when_they_are_larger_than_the_gpu_then_the_check_refuses() -> None:
    spec = next(starters("Qwen/Qwen3-14B"))
    with pytest.raises((InvalidArgumentError, AssertionError)):
        check_both(spec, 24, 1, 1)
    with pytest.raises((InvalidArgumentError, AssertionError)):
        check_turns(next(starters("Qwen/Qwen3-8B")), 80, 16)


def test_placements_when_listed_then_each_file_that_gives_gpus_is_among_them() -> None:
    named = {place.name.split(":")[0] for place in placements()}
    files = [p for p in COMPOSE if gives_gpus(compose_of(p))]
    files += [p for p in VALUES if gives_gpus(yaml.safe_load(p.read_text("utf-8")))]
    files += [p for p in EXAMPLES if TRAINS_ON.search(p.read_text("utf-8"))]
    assert named == {str(path.relative_to(ROOT)) for path in files} | {"troupe init"}
    assert all(0 < place.trainer_share() <= USABLE for place in placements())
