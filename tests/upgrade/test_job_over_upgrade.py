"""A job that one version began is finished by the next, with nothing trained twice or lost."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from platform_world import make_tiny_base, tiny_spec, trained_groups
from previous_version import ROOT, extract_previous, write_entry_points
from rooms import SERVICES, Rooms

from tests.conftest import ValkeyServer
from troupe.clients.rest import RestClient

STEPS = 10
_ENDED = ("succeeded", "failed", "cancelled")


@pytest.fixture(scope="session")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Folders with the code of the previous version and of this one."""
    paths = ("troupe", "services", "pyproject.toml")
    before = extract_previous(tmp_path_factory.mktemp("previous"), *paths)
    write_entry_points(before)
    return {"previous": before, "this": ROOT}


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory, versions: Mapping[str, Path]) -> Path:
    """A base model; made only when there are two versions to try it on."""
    return make_tiny_base(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def rooms(
    tmp_path: Path,
    versions: Mapping[str, Path],
    own_valkey_server: ValkeyServer,
    free_port: Callable[[], int],
) -> Iterator[Rooms]:
    """Nothing runs yet; everything is ended afterwards."""
    made = Rooms(tmp_path, own_valkey_server.url, versions, free_port)
    yield made
    made.stop()


def _begin(rooms: Rooms, spec: dict[str, Any], version: str) -> str:
    for service in SERVICES:
        rooms.start(service, version)
    with RestClient(f"http://{rooms.rest}", retry_for_s=120) as client:
        return client.submit(spec).job_id


def _await_step(rooms: Rooms, job_id: str, step: int) -> str:
    """The job's state once it has learned ``step`` steps, or has ended."""
    deadline = time.monotonic() + 300
    with RestClient(f"http://{rooms.rest}", retry_for_s=120) as client:
        while time.monotonic() < deadline:
            job = client.job(job_id)
            assert job.state != "failed", (job.reason, _words(rooms))
            if job.state in _ENDED or job.step >= step:
                return job.state
            rooms.revive()
            time.sleep(0.1)
    raise AssertionError(f"step {step} never came: {_words(rooms)}")


def _words(rooms: Rooms) -> dict[str, str]:
    """The last words of each service."""
    return {name: rooms.log_of(name).read_text("utf-8")[-1500:] for name in SERVICES}


def _assert_whole(rooms: Rooms, job_id: str) -> None:
    """Every step was trained once, with distinct groups, and both evaluations are recorded."""
    run_dir = rooms.folder / "runs" / job_id
    trained = trained_groups(run_dir)
    assert [step for step, _ in trained] == list(range(STEPS))
    for step, groups in trained:
        assert groups, step
        assert len(set(groups)) == len(groups), step
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines if x["kind"] == "train"] == list(range(STEPS))
    assert [x["step"] for x in lines if x["kind"] == "eval"] == [0, STEPS]


def test_job_when_every_service_is_upgraded_in_turn_then_ends_whole(
    rooms: Rooms, base: Path
) -> None:
    job_id = _begin(rooms, {**tiny_spec(base), "steps": STEPS}, "previous")
    for step, service in enumerate(SERVICES, start=1):
        state = _await_step(rooms, job_id, step)
        assert state not in _ENDED, f"the job ended before {service} was upgraded"
        rooms.replace(service, "this")
    assert _await_step(rooms, job_id, STEPS + 1) == "succeeded"
    _assert_whole(rooms, job_id)


def test_job_when_the_router_is_upgraded_and_rolled_back_then_ends_whole(
    rooms: Rooms, base: Path
) -> None:
    job_id = _begin(rooms, {**tiny_spec(base), "steps": STEPS}, "previous")
    for step, version in ((1, "this"), (3, "previous")):
        state = _await_step(rooms, job_id, step)
        assert state not in _ENDED, f"the job ended before the router became {version}"
        rooms.replace("router", version)
        # A worker that starts now is of the old version, and reads the spec as the router gives it.
        rooms.replace("rollout", "previous")
    assert _await_step(rooms, job_id, STEPS + 1) == "succeeded"
    _assert_whole(rooms, job_id)


def test_job_when_every_service_is_upgraded_and_rolled_back_in_turn_then_ends_whole(
    rooms: Rooms, base: Path
) -> None:
    job_id = _begin(rooms, {**tiny_spec(base), "steps": STEPS}, "previous")
    assert _await_step(rooms, job_id, 1) not in _ENDED, "the job ended before the upgrade"
    for service in SERVICES:
        rooms.replace(service, "this")
    for step, service in enumerate(SERVICES, start=3):
        state = _await_step(rooms, job_id, step)
        assert state not in _ENDED, f"the job ended before {service} was rolled back"
        rooms.replace(service, "previous")
    assert _await_step(rooms, job_id, STEPS + 1) == "succeeded"
    _assert_whole(rooms, job_id)
