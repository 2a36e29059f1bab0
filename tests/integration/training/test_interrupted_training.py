"""``troupe.train`` that is interrupted, on a platform that was up before."""

from pathlib import Path
from typing import Any

import httpx
import pytest

import troupe
from troupe.cli import train_commands
from troupe.clients.rest import JobDocument, RestClient

ROWS = [{"prompt": f"row {number}"} for number in range(20)]


class Router:
    """A platform that others started; it remembers which jobs were submitted and cancelled."""

    rest_url = "http://router"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def client(self, **_: Any) -> RestClient:
        return RestClient(self.rest_url, transport=httpx.MockTransport(self._answer))

    def up(self, _settings: Any) -> "tuple[Router, bool]":
        return self, False

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"jobs": []})
        self.asked.append(request.url.path.rpartition("/")[2])
        state = "cancelled" if "cancel" in self.asked else "running"
        return httpx.Response(200, json={"job_id": "own", "state": state, "run_dir": "/runs/own"})


def interrupted(_client: RestClient, _job: JobDocument, *, quiet: bool) -> JobDocument:
    raise KeyboardInterrupt


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> Router:
    platform = Router()
    monkeypatch.setattr(train_commands, "platform", platform)
    monkeypatch.setattr(train_commands, "watch", interrupted)
    return platform


def test_train_when_interrupted_then_its_job_ends_with_its_judge(
    router: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        troupe.train(
            ["a"], ROWS, lambda row, texts: 1.0, model=str(tmp_path), runs_dir=tmp_path, quiet=True
        )
    assert router.asked == ["jobs", "cancel"]
    assert "go on with: troupe.resume('/runs/own', dataset, reward, ...)" in capsys.readouterr().err
