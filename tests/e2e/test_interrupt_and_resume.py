"""Ctrl-C in ``troupe train`` ends cleanly, and ``--resume`` goes on to the same weights."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from troupe.runtime.launch.processes import find_leader

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture
def folder(tmp_path: Path, spec: dict[str, Any]) -> Path:
    """A folder with the spec of a few more steps in it."""
    document = {**spec, "steps": 12, "eval": {"num_tasks": 4}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(document))
    return tmp_path


@pytest.fixture
def environment(free_port: Any) -> Iterator[dict[str, str]]:
    ports = {f"TROUPE_{name}_PORT": str(free_port()) for name in ("REST", "GRPC", "ADMIN", "REDIS")}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TROUPE_")}
    yield {**inherited, **ports, "PYTHONUNBUFFERED": "1"}


def train(folder: Path, environment: dict[str, str], *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "troupe.cli", "train", *args],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def interrupt_at(process: "subprocess.Popen[str]", step: str) -> str:
    """Send Ctrl-C when the progress shows ``step``; what was printed after it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.lstrip().startswith("step") and f" {step}" in line:
            process.send_signal(signal.SIGINT)
            break
    return process.stdout.read()


def trained(run_dir: Path) -> list[tuple[int, list[str]]]:
    lines = [json.loads(line) for line in (run_dir / "groups.jsonl").read_text().splitlines()]
    return [(line["step"], line["group_ids"]) for line in lines]


def adapter(run_dir: Path) -> bytes:
    return (run_dir / "policies" / "shared" / "adapter" / "adapter_model.safetensors").read_bytes()


def test_train_when_interrupted_then_resume_gives_the_weights_of_an_uninterrupted_run(
    folder: Path, environment: dict[str, str]
):
    whole = train(folder, environment, "spec.yaml")
    text, _ = whole.communicate(timeout=150)
    assert whole.returncode == 0, text

    with train(folder, environment, "spec.yaml") as cut:
        text = interrupt_at(cut, "2/12")
        assert cut.wait(timeout=60) == 130, text
    assert "--resume runs/tiny-2" in text
    assert find_leader("TROUPE_TRAINER_JOB_ID", "tiny-2") is None, "the trainer still runs"
    interrupted = trained(folder / "runs" / "tiny-2")
    assert 0 < len(interrupted) < 12, "the run was not cut in the middle"

    resumed = train(folder, environment, "--resume", "runs/tiny-2")
    text, _ = resumed.communicate(timeout=150)
    assert resumed.returncode == 0, text
    found = [
        (step, [g.replace("tiny-2/", "tiny-1/") for g in ids])
        for step, ids in trained(folder / "runs" / "tiny-2")
    ]
    assert found == trained(folder / "runs" / "tiny-1")
    assert adapter(folder / "runs" / "tiny-2") == adapter(folder / "runs" / "tiny-1")
    metrics = (folder / "runs" / "tiny-2" / "metrics.jsonl").read_text().splitlines()
    steps = [m["step"] for m in map(json.loads, metrics) if m["kind"] == "train"]
    assert steps == list(range(12))


def test_train_when_a_run_that_succeeded_is_resumed_then_it_ends_like_one_of_that_length(
    folder: Path, environment: dict[str, str]
):
    for args in (
        ["spec.yaml", "--set", "steps=4"],
        ["spec.yaml", "--set", "steps=2"],
        ["--resume", "runs/tiny-2", "--set", "steps=4"],
    ):
        run = train(folder, environment, *args)
        text, _ = run.communicate(timeout=150)
        assert run.returncode == 0, text
    assert adapter(folder / "runs" / "tiny-2") == adapter(folder / "runs" / "tiny-1")
    lines = (folder / "runs" / "tiny-2" / "metrics.jsonl").read_text().splitlines()
    records = [(line["kind"], line["step"]) for line in map(json.loads, lines)]
    assert [step for kind, step in records if kind == "train"] == list(range(4))
    assert [step for kind, step in records if kind == "eval"] == [0, 2, 4]
    summary = json.loads((folder / "runs" / "tiny-2" / "summary.json").read_text())
    assert (summary["state"], summary["steps"], summary["lives"]) == ("succeeded", 4, 2)
    assert summary["records_lost"] == []
