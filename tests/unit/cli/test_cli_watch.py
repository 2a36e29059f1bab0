"""Watching a job, against a router that is a function."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from troupe.cli.follow import print_outcome, watch
from troupe.clients.rest import JobDocument, RestClient

QUEUED, PAUSED, SUCCEEDED = "queued", "paused", "succeeded"


class Router:
    """Sends one run of states for each time that it is followed; then nobody watches any more."""

    def __init__(self, *runs: tuple[str, ...]) -> None:
        self.runs = list(runs)
        self.state = runs[0][-1]
        self.place = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            return httpx.Response(200, json={"job_id": "demo-1", "state": self.state})
        if not self.runs:
            raise KeyboardInterrupt
        states = self.runs.pop(0)
        self.state = states[-1]
        return httpx.Response(
            200,
            text="".join(map(self._event, states)),
            headers={"content-type": "text/event-stream"},
        )

    def _event(self, state: str) -> str:
        self.place += 1
        body = {"type": "job.state", "occurred_at": 1.0, "data": {"state": state}}
        return f"id: {self.place}-0\nevent: job.state\ndata: {json.dumps(body)}\n\n"


Said = pytest.CaptureFixture[str]


def follow(router: Callable[[httpx.Request], httpx.Response], *, quiet: bool = False) -> str:
    with RestClient("http://router", transport=httpx.MockTransport(router)) as client:
        return watch(client, client.job("demo-1"), quiet=quiet).state


@pytest.mark.parametrize("quiet", [False, True])
def test_watch_when_the_job_is_paused_then_says_how_to_resume_it(capsys: Said, quiet: bool) -> None:
    router = Router((QUEUED, PAUSED), (QUEUED, SUCCEEDED))
    assert follow(router, quiet=quiet) == SUCCEEDED
    said = capsys.readouterr().err.splitlines()
    told = [line for line in said if "`troupe resume demo-1`" in line]
    assert len(told) == 1
    assert told[0].startswith("demo-1 is paused: nothing happens until")
    assert ("demo-1: queued" in said) is not quiet


def test_watch_when_the_job_was_paused_once_then_says_nothing_of_it(
    capsys: Said,
) -> None:
    assert follow(Router((QUEUED, PAUSED, QUEUED, SUCCEEDED))) == SUCCEEDED
    assert capsys.readouterr().err.splitlines() == [
        f"demo-1: {state}" for state in (QUEUED, PAUSED, QUEUED, SUCCEEDED)
    ]


def test_watch_when_interrupted_while_the_job_is_paused_then_ends(
    capsys: Said,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        follow(Router((PAUSED,)))
    assert "`troupe resume demo-1`" in capsys.readouterr().err.splitlines()[-1]


def test_watch_when_no_event_comes_then_says_what_the_job_waits_for(
    capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("troupe.cli.follow._ASK_EVERY_S", 0.01)
    monkeypatch.setattr("troupe.cli.follow._SILENT_S", 0.05)
    asked = threading.Semaphore(0)
    plain = Router((QUEUED, SUCCEEDED))
    waiting = {
        "phase": "launch",
        "step": 0,
        "who": ["rollout-0"],
        "sentence": "rollout-0 loads the model",
        "is_overdue": False,
    }
    progress = {
        "job_id": "demo-1", "state": "launching", "step": 0, "steps": 3, "versions": {},
        "waiting": waiting,
    }  # fmt: skip

    def stream() -> Iterator[bytes]:
        for event in map(plain._event, (QUEUED, SUCCEEDED)):
            yield event.encode()
            for _ in range(20):
                assert asked.acquire(timeout=10)

    def router(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/progress"):
            asked.release()
            return httpx.Response(200, json=progress)
        if request.url.path.endswith("/events"):
            headers = {"content-type": "text/event-stream"}
            return httpx.Response(200, content=stream(), headers=headers)
        return httpx.Response(200, json={"job_id": "demo-1", "state": SUCCEEDED})

    assert follow(router) == SUCCEEDED
    said = capsys.readouterr().err.splitlines()
    assert "  rollout-0 loads the model" in said


def outcome(capsys: Said, run_dir: Path, **summary: object) -> str:
    (run_dir / "summary.json").write_text(json.dumps(summary))
    print_outcome(JobDocument(job_id="demo-1", state="succeeded", run_dir=str(run_dir)))
    return " ".join(capsys.readouterr().out.split())


def test_outcome_when_answers_were_cut_off_then_names_both_limits(
    capsys: Said, tmp_path: Path
) -> None:
    said = outcome(capsys, tmp_path, steps=4, steps_truncated=3)
    assert "raise sampling.max_new_tokens (and max_tokens of a program's own calls" in said


def test_outcome_when_groups_were_dropped_then_says_how_many_and_why(
    capsys: Said, tmp_path: Path
) -> None:
    dropped = {"non_finite_reward": 15, "stale_version": 1}
    said = outcome(capsys, tmp_path, steps=2, steps_flat=1, groups_dropped=dropped)
    assert "1 of 2: all rewards of each group equal, or it was dropped" in said
    assert "16 were not learnt from: non_finite_reward 15, stale_version 1" in said
    assert "dropped" not in outcome(capsys, tmp_path, steps=2, steps_flat=1, groups_dropped={})


@pytest.mark.parametrize(
    ("success", "way"),
    [(0.05, "take easier"), (0.9, "take harder"), (None, "take tasks that are solved at times")],
)
def test_outcome_when_most_groups_were_paid_alike_then_the_advice_fits_the_success(
    capsys: Said, tmp_path: Path, success: float | None, way: str
) -> None:
    said = outcome(
        capsys, tmp_path, steps=2, final_success=success, groups_zero_variance=9, groups_trained=1
    )
    assert f"Set algorithm.redraws, {way}" in said
