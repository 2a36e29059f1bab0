"""`troupe train` that started the platform, and the jobs of others on it."""

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
        self.is_down = False

    def client(self, **_: Any) -> RestClient:
        return RestClient(self.rest_url, transport=httpx.MockTransport(self._answer))

    def up(self, _settings: Any) -> "tuple[Platform, bool]":
        return self, True

    def down(self, _settings: Any) -> None:
        self.is_down = True

    def _answer(self, request: httpx.Request) -> httpx.Response:
        jobs = [{"job_id": name, "state": state} for name, state in self.states.items()]
        if request.url.path.endswith("/jobs"):
            return httpx.Response(200, json={"jobs": jobs})
        return httpx.Response(200, json={"job_id": "own", "state": self.states["own"]})


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
    assert train_commands.job_to_end(settings, begin, quiet=True).state == "succeeded"
    assert world.is_down is not stays
    assert ("stays up for other" in capsys.readouterr().err) is stays
