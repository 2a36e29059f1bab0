"""``troupe.train_async``: what it leaves to the event loop, and how cancelling its task ends it."""

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

import troupe
from troupe.cli import train_commands
from troupe.clients.rest import JobDocument, RestClient
from troupe.errors import UnavailableError
from troupe.training import train as training

ROWS = [{"prompt": f"row {number}"} for number in range(20)]


class Router:
    """A router of a platform that others started, and a watch that lasts until a job's end."""

    rest_url = "http://router"

    def __init__(self, *, dies: bool = False) -> None:
        self.dies = dies
        self.is_watched, self.is_asked, self.is_left = (threading.Event() for _ in range(3))

    def client(self, **_: Any) -> RestClient:
        return RestClient(self.rest_url, transport=httpx.MockTransport(self._answer))

    def up(self, _settings: Any) -> "tuple[Router, bool]":
        return self, False

    def running(self, _folder: Path) -> "Router":
        return self

    def watch(self, _client: RestClient, job: JobDocument, *, quiet: bool) -> JobDocument:
        self.is_watched.set()
        assert self.is_asked.wait(60)
        self.is_left.set()
        if self.dies:
            raise UnavailableError("the router does not answer")
        return job.model_copy(update={"state": "cancelled"})

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"jobs": []})
        if request.url.path.endswith("/cancel"):
            self.is_asked.set()
            if self.dies:
                raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"job_id": "own", "state": "running", "run_dir": "/r/own"})


@pytest.mark.parametrize("dies", [False, True])
def test_train_async_when_cancelled_then_is_over_and_nothing_is_logged(
    dies: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    router, logged = Router(dies=dies), list[Any]()
    monkeypatch.setattr(train_commands, "platform", router)
    monkeypatch.setattr(train_commands, "watch", router.watch)
    monkeypatch.setattr(training, "platform", router)

    async def cancelled() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: logged.append(said))
        task = asyncio.create_task(
            troupe.train_async(
                ["a"],
                ROWS,
                lambda row, texts: 1.0,
                model=str(tmp_path),
                runs_dir=tmp_path,
                quiet=True,
            )
        )
        assert await asyncio.to_thread(router.is_watched.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert router.is_left.is_set()

    asyncio.run(cancelled())
    gc.collect()
    assert logged == []


def test_train_async_when_it_begins_then_rows_are_shown_beside_the_event_loop() -> None:
    threads: list[threading.Thread] = []

    def observe(row: object, agent: str, history: object) -> str:
        threads.append(threading.current_thread())
        return ""  # which is refused before the job

    with pytest.raises(troupe.TroupeError, match="observe"):
        asyncio.run(
            troupe.train_async(["a"], ROWS, lambda row, texts: 1.0, observe=observe, model="m")
        )
    assert threads
    assert threading.main_thread() not in threads
