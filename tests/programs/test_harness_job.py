"""A coding agent of somebody else, with its own command line, trained by the four services.

`make program-venv NAME=mini_swe` makes its virtual environment; else the tests are skipped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from platform_world import Platform, run_platform

from benchmarks.program_examples import EXAMPLES, python_of
from troupe_tasks.programs.activity import descendants

STEPS, TASKS, K = 2, 2, 3
DONE = "RUN echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
COLOURS = ("red", "green", "blue")
PATIENT = {"TROUPE_ENV_THREADS": "16"}
"""A call to the env service, and its thread, lasts from one call of the harness to its next."""
HARNESS = b"minisweagent.run.mini"

pytestmark = [
    pytest.mark.programs,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not python_of("mini_swe").exists(),
        reason="no .venv-programs/mini_swe: make program-venv NAME=mini_swe",
    ),
]


@pytest.fixture
def platform(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Platform]:
    with run_platform(tmp_path, free_port, {**PATIENT, "PYTHONPATH": str(tmp_path)}) as platform:
        yield platform


def a_base(folder: Path) -> Path:
    """A tiny model that writes commands which mini-swe-agent can read, the right one in most."""
    settings = yaml.safe_load((EXAMPLES / "mini_swe" / "mini.yaml").read_text())
    rows: list[dict[str, str]] = []
    for number in range(120):
        asked, other = COLOURS[number % 3], COLOURS[number // 3 % 3]
        said = asked if number % 2 else other
        answer = f"{DONE}; echo {said}" if number % 5 else f"RUN echo {said} > answer.txt"
        rows.append({"prompt": f"Order {number}: write {asked} into answer.txt", "answer": answer})
    rows += [{"prompt": " (status 0)", "answer": f"{DONE}; cat answer.txt"}] * 12
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "--agents": {"engineer": settings["agent"]["system_template"].strip()},
        "--shape": {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "max_positions": 1024},
        "--warm-start": {"num_careful_steps": 140, "num_careless_steps": 0, "batch_size": 16},
    }
    command = [sys.executable, "-m", "troupe.cli", "model", "tiny", "--rows", str(path)]
    command += [text for name, value in options.items() for text in (name, json.dumps(value))]
    done = subprocess.run(
        [*command, "--out", str(folder / "base")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "base"


def a_job(folder: Path) -> Path:
    """The example's spec on a tiny model, with paths that hold in ``folder``."""
    shutil.copy(EXAMPLES / "colours.py", folder)
    document = yaml.safe_load((EXAMPLES / "mini_swe.yaml").read_text())
    document |= {
        "steps": STEPS,
        "tasks_per_step": TASKS,
        "sampling": {"max_new_tokens": 24, "temperature": 0.7},
    }
    params = document["task"]["params"]
    params |= {"python": str(python_of("mini_swe")), "folder": str(EXAMPLES / "mini_swe")}
    document["policies"]["engineer"]["model"] = str(a_base(folder))
    document["algorithm"]["group_size"] = K
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def kill_a_harness(platform: Platform, over: threading.Event) -> bool:
    """End the agent's own process of one run, once it is there; False if the job ended first."""
    while not over.wait(0.2):
        for record in platform.folder.glob("runs/*/procs/env*.json"):
            for pid in descendants(int(json.loads(record.read_text())["pid"])):
                try:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if HARNESS in words:
                    os.kill(pid, signal.SIGKILL)
                    return True
    return False


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_harness_when_it_is_trained_and_killed_once_then_no_group_is_lost(
    platform: Platform,
) -> None:
    spec, over, killed = a_job(platform.folder), threading.Event(), list[bool]()
    killer = threading.Thread(target=lambda: killed.append(kill_a_harness(platform, over)))
    killer.start()
    try:
        done = platform.troupe("train", spec.name, "--json", timeout_s=1200)
    finally:
        over.set()
        killer.join()
    assert done.returncode == 0, done.stderr
    assert killed == [True]
    run_dir = platform.run_dir(json.loads(done.stdout)["job_id"])
    lines = [line for line in lines_of(run_dir / "metrics.jsonl") if line["kind"] == "train"]
    assert [line["step"] for line in lines] == list(range(len(lines)))
    assert len(lines) == STEPS
    for line in lines:
        assert line["num_dropped"] == 0
        assert line["groups_trained"] + line["groups_zero_variance"] == TASKS
    assert sum(line["groups_trained"] for line in lines) > 0
    for episode in lines_of(run_dir / "episodes.jsonl"):
        assert episode["program_ends"] == {"answered": K}
