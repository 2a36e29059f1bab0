"""The whole main job with two SGLang replicas: played, trained, pushed, evaluated, exported."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from platform_world import Platform, tiny_spec

from troupe_rollout.engines.sglang.settings import PREFIX

pytestmark = pytest.mark.timeout(1500)

SHAPE = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128}
WARM_START = {"num_careful_steps": 250, "num_careless_steps": 50, "batch_size": 32}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-here base that has seen a few demonstrations."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    options = {"--shape": SHAPE, "--params": {"max_actions": 3}, "--warm-start": WARM_START}
    words = [text for key, value in options.items() for text in (key, json.dumps(value))]
    command = [sys.executable, "-m", "troupe_trainer.tiny_model", "--task", "plan_path"]
    subprocess.run(
        [*command, "--size", "4", "--seed", "1", *words, "--out", str(folder)],
        check=True,
        timeout=400,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, free_port: Any) -> Iterator[Platform]:
    """`troupe up` whose rollout processes run SGLang."""
    ports = {name: free_port() for name in ("REST", "GRPC", "ADMIN", "REDIS")}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    environment |= {f"TROUPE_{name}_PORT": str(port) for name, port in ports.items()}
    environment |= {
        "TROUPE_ROLLOUT_ENGINE": "sglang",
        f"{PREFIX}DEVICE": "cpu",
        f"{PREFIX}WORK_DIR": str(tmp_path_factory.mktemp("work")),
        f"{PREFIX}MAX_TOTAL_TOKENS": "8192",
    }
    found = Platform(tmp_path_factory.mktemp("platform"), ports["REST"], environment)
    started = found.troupe("up")
    assert started.returncode == 0, started.stderr
    yield found
    assert found.troupe("down").returncode == 0


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_job_on_two_sglang_replicas_learns_from_the_logprobs_that_it_recomputes(
    platform: Platform, base: Path, kind: str
):
    with platform.client() as client:
        job = client.submit(spec_of(base, kind))
        for _ in client.events(job.job_id):
            pass
        ended = client.job(job.job_id)
    assert ended.state == "succeeded", ended
    run = platform.run_dir(job.job_id)
    steps, evals = lines_of(run, "train"), lines_of(run, "eval")
    assert [line["step"] for line in steps] == [0, 1]
    for line in steps:
        check_parity(line)
    assert [line["step"] for line in evals] == [0, 2]
    ready = [path for path in (run / "logs").glob("rollout*") if "sglang.ready" in path.read_text()]
    assert len(ready) == 2, "both replicas started an SGLang server"


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_job_goes_on_when_engines_are_killed_in_mid_generation_and_in_mid_push(
    platform: Platform, base: Path, kind: str
):
    with platform.client() as client:
        job = client.submit(spec_of(base, kind) | {"name": f"kills-{kind}"})
        run = platform.run_dir(job.job_id)
        pusher = threading.Thread(target=_kill_in_mid_push, args=(platform, job.job_id))
        pusher.start()
        happened = []
        for event in client.events(job.job_id):
            happened.append(event)
            if event.type == "round.opened" and _is_first_training(event.data):
                _kill_scheduler(platform.pid_of(job.job_id, _replicas(run)[0]))
        pusher.join(timeout=10)
        ended = client.job(job.job_id)
    assert ended.state == "succeeded", ended
    steps = lines_of(run, "train")
    assert [line["step"] for line in steps] == [0, 1]
    for line in steps:
        check_parity(line)
    logs = [(run / "logs" / f"{name}.log").read_text() for name in _replicas(run)]
    assert [log.count("sglang.lost") for log in logs] == [1, 1], "each engine was killed once"
    pushes = [event.data for event in happened if event.type == "weights.published"]
    assert [data["policy_version"] for data in pushes] == [0, 1, 2]
    assert all(replica["canary_error"] < 1e-3 for data in pushes for replica in data["replicas"])


def _is_first_training(opened: dict[str, Any]) -> bool:
    return (opened["kind"], opened["step"]) == ("train", 0)


def _replicas(run: Path) -> list[str]:
    return sorted(path.stem for path in (run / "logs").glob("rollout*.log"))


def _kill_in_mid_push(platform: Platform, job_id: str) -> None:
    """The second replica's engine, between the first step's checkpoint and its push."""
    run = platform.run_dir(job_id)
    trained, deadline = run / "groups.jsonl", time.monotonic() + 1200
    while not (trained.exists() and trained.stat().st_size):
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)
    _kill_scheduler(platform.pid_of(job_id, _replicas(run)[1]))


def _kill_scheduler(sidecar_pid: int) -> None:
    """The process that computes; its server notices, and so does the sidecar."""
    children = psutil.Process(sidecar_pid).children(recursive=True)
    found = [child for child in children if "sched" in child.name()]
    assert found, [child.name() for child in children]
    found[0].kill()


def check_parity(line: dict[str, Any]) -> None:
    assert line["groups_trained"] > 0
    assert abs(line["ratio_max"] - 1) < 0.005
    assert line["kl_rollout"] < 1e-4
    assert line["groups_dropped"] == {}


def lines_of(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def spec_of(base: Path, kind: str) -> dict[str, Any]:
    train = {"kind": "lora", "rank": 4, "alpha": 8} if kind == "lora" else {"kind": "full"}
    found = tiny_spec(base)
    found["policies"]["shared"] |= {"train": train, "replicas": 2}
    return found | {
        "name": f"sglang-{kind}",
        "steps": 2,
        "eval": {"num_tasks": 6},
        "limits": {"startup_timeout_s": 600, "generate_timeout_s": 240},
    }
