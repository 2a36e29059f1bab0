"""The one thread that runs torch: takes commands, and advances every busy lane in turn.

Owns the thread and its mailbox. A failure inside a lane fails that lane's requests and nothing
else; lanes share the thread token by token, so a long completion never starves another version.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

import torch

from troupe.errors import TroupeError, UnavailableError
from troupe.runtime.faults import reached
from troupe.runtime.telemetry.logging import get_logger
from troupe_rollout.engines.cpu.batcher import Batcher
from troupe_rollout.engines.cpu.rows import Job

Result = TypeVar("Result")
_log = get_logger(__name__)


class Worker:
    """Runs jobs and calls until `stop`. Its public methods may be called from any thread."""

    def __init__(self, *, torch_threads: int) -> None:
        self._torch_threads = torch_threads
        self._mailbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._busy: dict[int, Batcher] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="cpu-engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, lane: Batcher, job: Job) -> None:
        """Queue a job; its future resolves when every candidate is complete."""

        def accept() -> None:
            lane.enqueue(job)
            self._busy[id(lane)] = lane

        self._mailbox.put(accept)

    def hand_over(self, lanes: list[Batcher], to: Batcher) -> "Future[None]":
        """Let what follows updates in ``lanes`` go on in ``to``, between two tokens.

        Empties ``lanes``: the thread may look at its next message long after the future is set.
        """

        def move() -> None:
            for lane in lanes:
                lane.hand_over(to)
            lanes.clear()
            if not to.is_idle:
                self._busy[id(to)] = to

        return self.call(move)

    def call(self, function: Callable[[], Result]) -> "Future[Result]":
        """Run ``function`` on the thread between two tokens."""
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self._mailbox.put(run)
        return future

    def stop(self, timeout_s: float) -> None:
        """End the thread when nothing is in flight; fail remaining work after ``timeout_s``."""
        if not self._thread.is_alive():
            return
        self._mailbox.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.call(self._abandon_all)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        torch.set_num_threads(self._torch_threads)
        with torch.inference_mode():
            while self._busy or not self._is_stopping:
                self._take_messages()
                self._advance_all()

    def _take_messages(self) -> None:
        """Take all queued messages; waits for one only when there is nothing to compute."""
        must_wait = not self._busy and not self._is_stopping
        while True:
            try:
                message = self._mailbox.get(block=must_wait)
            except Empty:
                return
            must_wait = False
            if message is None:
                self._is_stopping = True
            else:
                message()

    def _advance_all(self) -> None:
        """Advance each busy lane. Its own function: none is held while the thread waits."""
        for key, lane in list(self._busy.items()):
            self._advance(lane)
            if lane.is_idle:
                del self._busy[key]

    def _advance(self, lane: Batcher) -> None:
        try:
            lane.advance()
            reached("rollout.generating")
        except Exception as error:
            _log.error("engine.lane_failed", exc_info=error)
            if not isinstance(error, TroupeError):
                error = UnavailableError(
                    f"The engine failed while computing ({type(error).__name__}: {error}). All "
                    "requests that this version was answering failed with it; see the rollout "
                    "service's log, and try again."
                )
            lane.abandon(error)

    def _abandon_all(self) -> None:
        for lane in self._busy.values():
            lane.abandon(UnavailableError("The rollout service is stopping; ask another replica."))
