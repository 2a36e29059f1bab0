"""`troupe train` and the platform: who started it, whose jobs run on it, what ends with whom."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from troupe.cli import train_commands
from troupe.cli.settings import settings_from
from troupe.clients.rest import JobDocument, RestClient


class Platform:
    """A router that is a function, and whether its platform was stopped."""

    rest_url = "http://router"

    def __init__(self, **states: str) -> None:
        self.states = states
        self.is_started_here = True
        self.is_down = False

    def client(self, **_: Any) -> RestClient:
        return RestClient(self.rest_url, transport=httpx.MockTransport(self._answer))

    def up(self, _settings: Any) -> "tuple[Platform, bool]":
        return self, self.is_started_here

    def down(self, _settings: Any) -> None:
        self.is_down = True

    def _answer(self, request: httpx.Request) -> httpx.Response:
        jobs = [{"job_id": name, "state": state} for name, state in self.states.items()]
        if request.url.path.endswith("/jobs"):
            return httpx.Response(200, json={"jobs": jobs})
        if request.url.path.endswith("/cancel"):
            self.states["own"] = "cancelled"
        name = request.url.path.split("/")[3]
        return httpx.Response(200, json={"job_id": name, "state": self.states[name]})


@pytest.mark.parametrize(
    ("before", "meanwhile", "stays"),
    [
        ({}, {}, False),
        ({"left": "paused"}, {}, False),  # of an earlier platform
        ({}, {"other": "succeeded"}, False),
        ({"left": "paused"}, {"other": "running"}, True),
    ],
)
def test_train_when_others_submitted_meanwhile_then_their_platform_stays_up(
    before: dict[str, str],
    meanwhile: dict[str, str],
    stays: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    world = Platform(**before)

    def begin(client: RestClient) -> JobDocument:
        world.states |= {"own": "running"} | meanwhile
        return client.job("own")

    def watch(client: RestClient, _job: JobDocument, *, quiet: bool) -> JobDocument:
        world.states["own"] = "succeeded"
        return client.job("own")

    monkeypatch.setattr(train_commands, "platform", world)
    monkeypatch.setattr(train_commands, "watch", watch)
    settings = settings_from(runs_dir=tmp_path)
    assert train_commands.job_to_end(settings, begin).state == "succeeded"
    assert world.is_down is not stays
    said = " ".join(capsys.readouterr().err.split())
    assert ("stays up for other" in said) is stays
    assert (f"`troupe down --runs-dir {tmp_path}`" in said) is stays


def test_train_when_two_run_in_one_process_then_the_last_to_end_stops_their_platform(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world = Platform()
    first_began, second_began = threading.Event(), threading.Event()
    downs: list[bool] = []

    def begin_first(client: RestClient) -> JobDocument:
        world.states["own"] = "running"
        world.is_started_here = False  # whoever comes now finds it up
        first_began.set()
        return client.job("own")

    def begin_second(client: RestClient) -> JobDocument:
        world.states["second"] = "running"
        second_began.set()
        return client.job("second")

    def watch(client: RestClient, job: JobDocument, *, quiet: bool) -> JobDocument:
        if job.job_id == "own":
            assert second_began.wait(60.0)
        else:
            first.join(60.0)
            downs.append(world.is_down)
        world.states[job.job_id] = "succeeded"
        return client.job(job.job_id)

    monkeypatch.setattr(train_commands, "platform", world)
    monkeypatch.setattr(train_commands, "watch", watch)
    settings = settings_from(runs_dir=tmp_path)
    first = threading.Thread(
        target=lambda: train_commands.job_to_end(settings, begin_first, quiet=True)
    )
    first.start()
    assert first_began.wait(60.0)
    train_commands.job_to_end(settings, begin_second, quiet=True)
    assert (downs, world.is_down) == ([False], True)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("is_started_here", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("of a display")])
def test_train_when_its_judge_stops_watching_then_the_job_is_cancelled(
    error: BaseException,
    is_started_here: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    world = Platform()
    world.is_started_here = is_started_here
    with pytest.raises(type(error)):
        interrupted(world, error, tmp_path, monkeypatch, is_judge=True)
    assert world.states["own"] == "cancelled"
    assert world.is_down is is_started_here
    assert "go on with: troupe train --resume" in capsys.readouterr().err


def test_train_when_nothing_here_judges_then_a_job_of_another_platform_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    world = Platform()
    world.is_started_here = False
    with pytest.raises(KeyboardInterrupt):
        interrupted(world, KeyboardInterrupt(), tmp_path, monkeypatch, is_judge=False)
    assert world.states["own"] == "running"
    assert "the job goes on" in capsys.readouterr().err


def interrupted(
    world: Platform,
    error: BaseException,
    runs_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_judge: bool,
) -> None:
    """A job whose watching ends with ``error``."""

    def begin(client: RestClient) -> JobDocument:
        world.states["own"] = "running"
        return client.job("own")

    def watch(_client: RestClient, _job: JobDocument, *, quiet: bool) -> JobDocument:
        raise error

    monkeypatch.setattr(train_commands, "platform", world)
    monkeypatch.setattr(train_commands, "watch", watch)
    train_commands.job_to_end(
        settings_from(runs_dir=runs_dir), begin, quiet=True, is_judge=is_judge
    )
