"""A platform whose Redis loses writes that it had answered, as a power cut under ``everysec`` does.

The server is killed, its file cut back to what it was some changes ago, and started again. A job
goes on then as if nothing had happened, or ends with a reason; and then its resumption ends as if
nothing had happened: no checkpoint holds what was not learnt from exactly its groups. A server that
was emptied lets the job rest, paused, and its resumption ends so too.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import redis
from chaos_cases import EMPTIED, Case
from chaos_outcome import OTHER_STEPS, Outcome
from chaos_world import END_S, PATIENCE_S, ChaosWorld, NotSucceededError
from follower import Follower
from process_tree import wait_for
from wired_world import Valkey

from troupe.clients.rest import TERMINAL
from troupe.errors import TroupeError
from troupe.runtime.streams import keys

LOST_CHANGES = 3
"""The ledger changes so often in what is lost, at least."""


class LostWritesWorld(ChaosWorld):
    """``valkey`` is the platform's server, and not started by the platform."""

    kept = ("router",)
    valkey: Valkey
    _reason = ""
    _may_fail = True
    _is_emptied = False

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Kill the server and start it again with the file that it had some changes ago.

        Or empty it, and leave everybody else alone.
        """
        self._may_fail, self._is_emptied = True, case.how == EMPTIED
        if self._is_emptied:
            hit_at = time.time()
            self.valkey.ask("FLUSHALL")
            os.kill(stander, signal.SIGCONT)
            return hit_at, stander
        logs = self.valkey.folder.glob("appendonlydir/*.incr.aof")
        log = max(logs, key=lambda path: path.stat().st_mtime)
        size = log.stat().st_size
        os.kill(stander, signal.SIGCONT)
        self._wait_changes(job_id)
        self.valkey.stop()
        os.truncate(log, size)
        hit_at = time.time()
        self.valkey.start()
        assert self.valkey.process is not None
        self._elders |= {self.valkey.process.pid}
        return hit_at, stander

    def _wait_changes(self, job_id: str) -> None:
        """Until the server's ledger has changed some times, or the job is over."""
        with redis.Redis(port=self.valkey.port, socket_timeout=10) as client:
            seen: set[bytes] = set()

            def has_changed() -> bool:
                newest = cast("list[Any]", client.xrevrange(keys.changes(job_id), count=1))
                seen.update(entry for entry, _ in newest)
                state = client.hget(keys.job(job_id), "state")
                return len(seen) > LOST_CHANGES or cast("bytes", state).decode() in TERMINAL

            wait_for("changes that will be lost", has_changed, within_s=120)

    def _serves(self, case: Case, job_id: str, hit_at: float, old: int, follower: Follower) -> bool:
        return self.valkey.answers()

    def _await_end(self, job_id: str) -> None:
        self._reason = ""
        if self._is_emptied:
            self._is_emptied = False
            wait_for(f"job {job_id} to rest", lambda: self._rests(job_id), within_s=END_S)
            return
        try:
            super()._await_end(job_id)
        except NotSucceededError as error:
            if not self._may_fail:
                raise
            self._reason = str(error)

    def _rests(self, job_id: str) -> bool:
        with suppress(TroupeError), self._platform.client(retry_for_s=0) as client:
            job = client.job(job_id)
            if job.state == "paused":
                self._reason = f"job {job_id} rests paused: {job.reason}"
        return bool(self._reason)

    def _judge(self, outcome: Outcome, job_id: str, expected: Path, follower: Follower) -> None:
        if not self._reason:
            super()._judge(outcome, job_id, expected, follower)
            return
        outcome.ended = self._reason.partition("; look at the logs")[0]
        named = (f"job {job_id} ended failed ", f"job {job_id} rests paused: Redis lost the job")
        if not self._reason.startswith(named):
            outcome.faults.append(f"no reason is named: {self._reason}")
        self._judge_strays(outcome)
        with self._platform.client(retry_for_s=PATIENCE_S) as client:
            client.resume(job_id)
        self._may_fail = False
        self._await_end(job_id)
        # The earlier life may have published the same versions.
        second = Follower(self._platform, job_id)
        versions = {*follower.versions(), *second.ended()}
        outcome.compare(self._platform.run_dir(job_id), expected, sorted(versions))
        self._excuse_what_is_named(outcome, second)
        self._judge_strays(outcome)

    def _excuse_what_is_named(self, outcome: Outcome, follower: Follower) -> None:
        """A learnt step's measurements lie in Redis until its line is written: named when lost."""
        lost = [event.data for _, event in follower.events if event.type == "records.lost"]
        if [data["file"] for data in lost] == ["metrics.jsonl"] and OTHER_STEPS in outcome.faults:
            outcome.faults.remove(OTHER_STEPS)
            outcome.ended += f"; resumed, and named as lost: the line of {lost[0]['part']}"
