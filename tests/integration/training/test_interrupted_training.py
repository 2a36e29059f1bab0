"""``troupe.train`` that is interrupted, on a platform that was up before, and then resumed."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import troupe
from troupe import InvalidArgumentError
from troupe.cli import train_commands
from troupe.clients.rest import JobDocument, RestClient

ROWS = [{"prompt": f"row {number}"} for number in range(20)]
FUNCTIONS: dict[str, Any] = {
    "reward": lambda row, texts: 1.0,
    "observe": lambda row, agent, history: row["prompt"],
    "done": lambda row, history: True,
    "success": 1.0,
}


class Router:
    """A platform that others started; it remembers which jobs were submitted and cancelled."""

    rest_url = "http://router"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.spec: dict[str, Any] = {}

    def client(self, **_: Any) -> RestClient:
        return RestClient(self.rest_url, transport=httpx.MockTransport(self._answer))

    def up(self, _settings: Any) -> "tuple[Router, bool]":
        return self, False

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"jobs": []})
        self.asked.append(request.url.path.rpartition("/")[2])
        if self.asked == ["jobs"]:
            self.spec = json.loads(request.content)
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


def test_resume_when_the_folder_of_the_socket_is_gone_then_judges_there_again(
    router: Router, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        troupe.train(
            ["a"], ROWS, lambda row, texts: 1.0, model=str(tmp_path), runs_dir=tmp_path, quiet=True
        )
    run = tmp_path / "own"
    run.mkdir()
    folder = tmp_path_factory.mktemp("s") / "gone" / "private"  # as an older version named it
    router.spec["task"]["params"]["socket"] = str(folder / "j.sock")
    (run / "spec.json").write_text(json.dumps(router.spec))
    with pytest.raises(KeyboardInterrupt):
        troupe.resume(run, ROWS, lambda row, texts: 1.0, quiet=True)
    assert router.asked == ["jobs", "cancel", "resume", "cancel"]
    assert folder.is_dir()


def begun_with_functions(router: Router, tmp_path: Path) -> Path:
    """The folder of an interrupted run that has every function."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        troupe.train(["a"], ROWS, model=str(tmp_path), runs_dir=tmp_path, quiet=True, **FUNCTIONS)
    run = tmp_path / "own"
    run.mkdir()
    (run / "spec.json").write_text(json.dumps(router.spec))
    return run


def test_train_when_interrupted_then_says_which_functions_to_resume_with(
    router: Router, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun_with_functions(router, tmp_path)
    functions = "observe=observe, done=done, success=success, ...)"
    assert f"dataset, reward, {functions}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["observe", "done", "success"])
def test_resume_when_a_function_is_missing_or_new_then_is_refused_unless_none_is_recorded(
    name: str, router: Router, tmp_path: Path
) -> None:
    run = begun_with_functions(router, tmp_path)
    fewer = {key: value for key, value in FUNCTIONS.items() if key != name}
    with pytest.raises(InvalidArgumentError, match=f"begun with {name}; give {name}=..., or begin"):
        troupe.resume(run, ROWS, **fewer)
    params = router.spec["task"]["params"]
    params[f"has_{name}"] = False
    (run / "spec.json").write_text(json.dumps(router.spec))
    with pytest.raises(InvalidArgumentError, match=f"begun without {name}; leave it out"):
        troupe.resume(run, ROWS, **FUNCTIONS)
    del params[f"has_{name}"]
    (run / "spec.json").write_text(json.dumps(router.spec))
    with pytest.raises(KeyboardInterrupt):
        troupe.resume(run, ROWS, **fewer)
