"""One device for the trainer and a real SGLang, by `TROUPE_ROUTER_GPUS=1 troupe up`, with kills.

On a CPU SGLang answers release and resume and gives no memory back; all else is as on a GPU.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platform_world import Platform, make_tiny_base, start_platform, tiny_spec

from troupe_rollout.engines.sglang.settings import PREFIX

pytestmark = pytest.mark.timeout(1500)

POINTS = {
    # killed asleep: the trainer before it learns, and the replica while it does
    1: "trainer.servers_asleep",
    2: "rollout.asleep",
    # killed between release and load: nobody has the device
    3: "trainer.device_free",
    # killed while waking: before the memory is back, and before what it held is
    4: "rollout.waking",
    5: "rollout.resumed",
}
"""The training step in which one process stands at a point, and is killed there."""
STEPS = 6
WITHIN_S = 300.0


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def platform(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int], faults: Path
) -> Iterator[Platform]:
    more = {
        "TROUPE_ROUTER_GPUS": "1",
        "TROUPE_FAULTS_DIR": str(faults),
        f"{PREFIX}DEVICE": "cpu",
        f"{PREFIX}WORK_DIR": str(tmp_path_factory.mktemp("work")),
        f"{PREFIX}MAX_TOTAL_TOKENS": "8192",
    }
    yield from start_platform(tmp_path_factory.mktemp("platform"), free_port, more)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_job_on_one_device_when_either_user_is_killed_at_each_turn_then_nothing_is_lost(
    platform: Platform, faults: Path, tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    base = make_tiny_base(tmp_path_factory.getbasetemp() / "base")
    killed: list[str] = []
    with platform.client() as client:
        job = client.submit(spec_of(base, kind))
        run = platform.run_dir(job.job_id)
        for step, point in POINTS.items():
            # Committed: the round of this step is played, and the trainer waits for it.
            wait_for(f"step {step}", lambda s=step: trained(run) >= s)
            (faults / point).touch()
            killed += [stopped_at(faults, point)]
        for _ in client.events(job.job_id):
            pass
        ended = client.job(job.job_id)
    assert ended.state == "succeeded", ended
    assert killed == list(POINTS.values())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in steps] == list(range(STEPS))
    for line in steps:
        assert line["groups_trained"] > 0 and line["groups_dropped"] == {}
        assert abs(line["ratio_max"] - 1) < 0.005, "played and learnt with the same weights"


def stopped_at(faults: Path, point: str) -> str:
    """Kill the process that stands at ``point``; returns the point."""
    wait_for(point, lambda: any(faults.glob(f"{point}.*")))
    [standing] = faults.glob(f"{point}.*")
    os.kill(int(standing.suffix[1:]), signal.SIGKILL)
    standing.unlink()
    return point


def trained(run: Path) -> int:
    """Steps whose line is written."""
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return 0
    return sum(json.loads(line)["kind"] == "train" for line in lines)


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {WITHIN_S:g} s: {what}"
        time.sleep(0.01)


def spec_of(base: Path, kind: str) -> dict[str, Any]:
    train = {"kind": "lora", "rank": 4, "alpha": 8} if kind == "lora" else {"kind": "full"}
    found = tiny_spec(base)
    found["policies"]["shared"] |= {"train": train, "dtype": "float32"}
    return found | {
        "name": f"one-device-{kind}",
        "steps": STEPS,
        "eval": {"num_tasks": 4},
        "limits": {"startup_timeout_s": 600, "generate_timeout_s": 240},
    }
