"""Keeps one SGLang server alive: starts it, watches it, starts it again, restores what it served.

Owns the life of the server and access to it. The caller decides what to restore: `restore` runs on
each fresh server before anyone else gets its client.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from troupe.errors import (
    InvalidArgumentError,
    TroupeError,
    UnavailableError,
    WeightsRejectedError,
)
from troupe.retry import STEADY, Backoff
from troupe.runtime.faults import reached
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.deadlines import model_bytes, moving_s
from troupe_rollout.engines.sglang.client import SglangClient
from troupe_rollout.engines.sglang.command import (
    ServerPlan,
    beside_others,
    server_argv,
    server_environment,
)
from troupe_rollout.engines.sglang.environment import look_at_machine
from troupe_rollout.engines.sglang.process import ChildProcess
from troupe_rollout.engines.sglang.settings import SglangSettings

_log = get_logger(__name__)

MAX_BACKOFF_S = 30.0
MAX_FAILED_LOOKS = 3
START_POLL_S = 0.2
TURN_S = 60.0
"""Longest time in which a server gives its memory back, or serves again with it, beside the time
for the model's bytes; the trainer waits for it, and a server that takes longer is ended."""

Restore = Callable[[SglangClient], Awaitable[None]]
State = Literal["new", "starting", "ready", "down", "asleep", "stopped"]


class Supervisor:
    """One server. Its client is given out only while the server is known to serve."""

    def __init__(
        self,
        settings: SglangSettings,
        plan: ServerPlan,
        *,
        log: Path,
        restore: Restore,
        turn: asyncio.Lock | None = None,
    ) -> None:
        """``turn`` is held while this server starts: others of its GPU wait, as it sizes its cache
        by what is free."""
        self._settings = settings
        self._plan = plan
        self._log_path = log
        self._restore = restore
        self._turn = turn or asyncio.Lock()
        self._client: SglangClient | None = None
        self._child: ChildProcess | None = None
        self._loop: asyncio.Task[None] | None = None
        self._why = "it has not been started"
        self._shaken = asyncio.Event()
        self._base_checksum = ""
        self._loading_s = 0.0
        self.state: State = "new"
        self.num_starts = 0
        self.context_length = plan.context_length
        """Of a prompt and its completion: the plan's, or less where the server has less room."""

    @property
    def pid(self) -> int:
        """The server's process, 0 when attached or not running."""
        return self._child.pid if self._child and self._child.is_alive else 0

    @property
    def is_ready(self) -> bool:
        """The server serves and holds what it should."""
        return self.state == "ready"

    def client(self) -> SglangClient:
        """The server's client; raises UnavailableError while it is down or being restored."""
        if self.state != "ready" or self._client is None:
            raise UnavailableError(
                f"The SGLang server of '{self._plan.model}' is {self.state}: {self._why}. It is "
                "being restarted; ask another replica, or try again."
            )
        return self._client

    async def start(self) -> None:
        """The first start, then the watch. Raises InvalidArgumentError when it can't start."""
        try:
            await self._bring_up()
        except TroupeError as error:
            with contextlib.suppress(UnavailableError):
                await self._take_down()
            raise self._cannot_serve(error) from error
        self._loop = asyncio.create_task(self._watch(), name="sglang-watch")

    def prepare(self) -> None:
        """Start no server yet: ``resume`` does, when the device's turn has come."""
        self.state, self._why = "asleep", "the trainer has the device"

    async def release(self) -> None:
        """Free the device and stop watching; a server that does not answer is ended. Idempotent.

        Raises UnavailableError when a process of it can't be ended.
        """
        if self.state == "asleep":
            return
        was_ready = self.state == "ready"
        await self._end_watch()
        self.state, self._why = "down", "it gives the device to the trainer"
        try:
            if not was_ready or self._client is None:
                raise UnavailableError("it was not serving")
            async with asyncio.timeout(TURN_S + self._loading_s):
                # An adapter's base never changes, so what comes back must be the same.
                self._base_checksum = await self._client.checksum() if self._plan.lora else ""
                await self._client.release_memory()
        except Exception as error:  # whatever it was, the device must be free
            _log.warning("sglang.ended_to_sleep", why=str(error) or type(error).__name__)
            await self._take_down()
        self.prepare()

    async def resume(self) -> None:
        """Serve again: wake the server that sleeps, else start one. Both are restored.

        Raises:
            InvalidArgumentError: the first start fails; UnavailableError: a later one.
        """
        is_first = self.num_starts == 0
        try:
            if not await self._woken():
                await self._take_down()
                await self._bring_up()
        except BaseException as error:
            await self._take_down()  # nothing may be left on the device
            self.prepare()
            if not isinstance(error, TroupeError):
                raise
            if is_first:
                raise self._cannot_serve(error) from error
            raise UnavailableError(f"SGLang did not wake: {error.message}") from error
        self._loop = asyncio.create_task(self._watch(), name="sglang-watch")

    async def _woken(self) -> bool:
        """Whether the server that sleeps serves again, with the weights that it had."""
        client = self._client
        if client is None or (self._child is not None and not self._child.is_alive):
            return False
        try:
            async with asyncio.timeout(TURN_S + self._loading_s):
                await client.resume_memory()
                reached("rollout.resumed")
                if self._base_checksum and await client.checksum() != self._base_checksum:
                    raise WeightsRejectedError("the base model is not what it was before the sleep")
                await self._restore(client)
                await client.probe()
        except (TroupeError, TimeoutError) as error:
            _log.warning("sglang.not_woken", why=str(error) or type(error).__name__)
            return False
        self.state, self._why = "ready", ""
        self._shaken.clear()
        return True

    def distrust(self, why: str) -> None:
        """Restart the server and restore it, since its contents are unknown."""
        _log.warning("sglang.distrusted", why=why)
        self.state, self._why = "down", why
        self._shaken.set()

    async def stop(self) -> None:
        """End the server and the watch."""
        self.state, self._why = "stopped", "the engine is stopping"
        await self._end_watch()
        try:
            await self._take_down()
        except UnavailableError as error:
            _log.error("sglang.not_ended", error=error.message)

    async def _end_watch(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            self._loop = None

    def _cannot_serve(self, error: TroupeError) -> InvalidArgumentError:
        return InvalidArgumentError(f"SGLang can't serve '{self._plan.model}': {error.message}")

    async def _bring_up(self) -> None:
        async with self._turn:
            if self.state == "stopped":  # while it waited
                raise UnavailableError(self._why)
            await self._bring_up_now()

    async def _bring_up_now(self) -> None:
        self.state = "starting"
        began = time.monotonic()
        url = self._settings.url
        if not url:
            plan = self._plan
            if plan.share_bytes:
                machine = await look_at_machine(self._settings)
                plan = beside_others(plan, machine.available_bytes)
            port = _free_port()
            url = f"http://127.0.0.1:{port}"
            argv = server_argv(self._settings, plan, python=self._settings.interpreter(), port=port)
            env = server_environment(self._settings, plan, os.environ)
            self._child = ChildProcess(argv, env, self._log_path)
            await self._child.start()
        self._loading_s = moving_s(model_bytes(str(self._plan.model)))
        call_s = self._settings.call_timeout_s + self._loading_s
        self._client = SglangClient(url, timeout_s=call_s)
        self.num_starts += 1
        limit_s = self._settings.start_timeout_s + self._loading_s
        try:
            async with asyncio.timeout(limit_s):
                await self._until_healthy(self._client)
                await self._client.probe()
                room = await self._client.room()
                self.context_length = min(self._plan.context_length, room)
                await self._restore(self._client)
        except TimeoutError as error:
            raise UnavailableError(
                f"it did not answer within {limit_s:g} s "
                f"(TROUPE_ROLLOUT_SGLANG_START_TIMEOUT_S). {self._last_words()}"
            ) from error
        self.state, self._why = "ready", ""
        self._shaken.clear()
        _log.info(
            "sglang.ready",
            model=str(self._plan.model),
            url=url,
            pid=self.pid,
            num_starts=self.num_starts,
            context_length=self.context_length,
            start_s=round(time.monotonic() - began, 2),
            log=str(self._log_path),
        )

    async def _until_healthy(self, client: SglangClient) -> None:
        while not await client.is_healthy(self._settings.health_timeout_s):
            if self._child is not None and not self._child.is_alive:
                status = await self._child.wait()
                raise UnavailableError(f"it ended with status {status}. {self._last_words()}")
            await asyncio.sleep(START_POLL_S)

    async def _watch(self) -> None:
        """Until cancelled, detect a dead or unresponsive server and bring it back."""
        while True:
            why = await self._until_lost()
            self.state, self._why = "down", why
            _log.error("sglang.lost", why=why, model=str(self._plan.model), tail=self._tail())
            await self._bring_back()

    async def _bring_back(self) -> None:
        backoff = Backoff(self._settings.backoff_s, MAX_BACKOFF_S, STEADY)
        for num_failures in itertools.count(1):
            try:
                await self._take_down()
                await asyncio.sleep(backoff.pause_s(num_failures))
                await self._bring_up()
            except Exception as error:  # whatever it was: nobody else brings the server back
                self.state, self._why = "down", str(error) or type(error).__name__
                _log.error("sglang.restart_failed", error=self._why)
            else:
                return

    async def _until_lost(self) -> str:
        """Wait until the server counts as lost; returns why."""
        assert self._client is not None
        shaken = asyncio.ensure_future(self._shaken.wait())
        ended = asyncio.ensure_future(self._child.wait()) if self._child else None
        failed = 0
        try:
            while failed < MAX_FAILED_LOOKS:
                events = {shaken, ended} if ended else {shaken}
                done, _ = await asyncio.wait(
                    events,
                    timeout=self._settings.health_interval_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if ended is not None and ended in done:
                    return f"it ended with status {ended.result()}"
                if shaken in done:
                    return self._why
                is_healthy = await self._client.is_healthy(self._settings.health_timeout_s)
                failed = 0 if is_healthy else failed + 1
            return f"it did not answer {MAX_FAILED_LOOKS} looks at its health"
        finally:
            shaken.cancel()
            if ended is not None:
                ended.cancel()

    async def _take_down(self) -> None:
        """End the server; raises UnavailableError when a process of it lives on."""
        if self._client is not None:
            await self._client.close()
            self._client = None
        if self._child is not None:
            await self._child.stop()
            self._child = None

    def _last_words(self) -> str:
        return f"Its log {self._log_path} ends: {self._tail()}" if not self._settings.url else ""

    def _tail(self) -> str:
        return self._child.tail() if self._child else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
