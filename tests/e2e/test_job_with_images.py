"""A whole job whose agent sees: env, router, engine and trainer hand the images on unchanged."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from image_world import TASK, make_seeing_base
from platform_world import Platform, run_platform

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="session")
def seeing_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_seeing_base(tmp_path_factory.getbasetemp() / "seeing-base")


@pytest.fixture(scope="module")
def seeing_platform(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[Platform]:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    folder = tmp_path_factory.mktemp("seeing")
    with run_platform(folder, free_port, {"PYTHONPATH": path}) as platform:
        yield platform


def _spec(base: Path) -> dict[str, Any]:
    return {
        "name": "seeing",
        "seed": 5,
        "steps": 3,
        "tasks_per_step": 8,
        "task": {"name": TASK},
        "workflow": {"order": ["agent"], "max_turns": 1},
        "agents": {"agent": {"policy": "shared"}},
        "policies": {
            "shared": {
                "model": str(base),
                "train": {"kind": "lora", "rank": 4, "alpha": 8},
                "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0},
            }
        },
        "algorithm": {"kind": "at_grpo", "group_size": 4},
        "sampling": {"max_new_tokens": 4},
        "eval": {"num_tasks": 12},
    }


def test_job_when_the_agent_sees_then_trains_on_what_the_engine_saw_and_exports_it(
    seeing_platform: Platform, seeing_base: Path
) -> None:
    (seeing_platform.folder / "spec.yaml").write_text(yaml.safe_dump(_spec(seeing_base)))

    done = seeing_platform.troupe("train", "spec.yaml", "--json", timeout_s=500)

    assert done.returncode == 0, done.stderr
    run_dir = seeing_platform.run_dir(json.loads(done.stdout)["job_id"])
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in train] == [0, 1, 2]
    for line in train:
        assert line["groups_dropped"] == {}
        assert line["trained_tokens"] > 0
        assert line["grad_norm"] > 0.0
        assert line["ratio_max"] == pytest.approx(1.0, abs=1e-4), "the engine saw what is trained"
    merged = run_dir / "policies" / "shared" / "merged"
    assert json.loads((merged / "config.json").read_text())["model_type"] == "qwen2_5_vl"
    assert (merged / "preprocessor_config.json").is_file()
