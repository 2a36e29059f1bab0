"""A platform on a Valkey with a replica, which takes its place behind the proxy.

Replication is asynchronous, so a replica may lack what the primary had answered. A fail-over that
loses nothing must not be noticed. After one that loses writes a job goes on or ends with a reason,
and then its resumption ends as if nothing had happened: no checkpoint holds what was not learnt
from exactly its groups.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import redis
from chaos_cases import CUT, LOSSY, Case
from chaos_outcome import Outcome
from chaos_world import PATIENCE_S, NotSucceededError
from follower import Follower
from process_tree import wait_for
from wired_world import FAR, Valkey, WiredWorld

from troupe.clients.rest import TERMINAL
from troupe.runtime.streams import keys

LOST_CHANGES = 3
"""The ledger changes so often after the replica was cut off, at least."""


class FailoverWorld(WiredWorld):
    """``valkey`` is the primary now; ``make_valkey`` makes a server that is not started yet."""

    valkey: Valkey
    make_valkey: Callable[[], Valkey]
    _reason = ""
    _may_fail = False

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Promote a replica that has everything, or one that was cut off moments ago."""
        if case.how == CUT:
            return self._cut(job_id, stander)
        replica = self._follow()
        self._may_fail = case.how == LOSSY
        if case.how == LOSSY:
            replica.ask("REPLICAOF", "NO", "ONE")
            os.kill(stander, signal.SIGCONT)
            self._wait_changes(job_id)
            self.valkey.stop()
        else:
            self.valkey.ask("CLIENT", "PAUSE", "60000", "WRITE")
            wait_for("the replica to have all", lambda: self._has_all(replica), within_s=60)
            self.valkey.stop()
            replica.ask("REPLICAOF", "NO", "ONE")
        hit_at = time.time()
        self.valkey = replica
        self._wire.retarget("redis", (FAR, replica.port))
        os.kill(stander, signal.SIGCONT)
        return hit_at, stander

    def _cut(self, job_id: str, stander: int) -> tuple[float, int]:
        """Kill the server and start it again with the file that it had some changes ago."""
        self._may_fail = True
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

    def _follow(self) -> Valkey:
        """A new replica, in step with the primary."""
        replica = self.make_valkey()
        replica.start()
        assert replica.process is not None
        self._elders |= {replica.process.pid}
        replica.ask("REPLICAOF", FAR, str(self.valkey.port))

        def is_up() -> bool:
            return facts(replica)["master_link_status"] == "up"

        wait_for("the replica to be in step", is_up, within_s=60)
        return replica

    def _has_all(self, replica: Valkey) -> bool:
        written = facts(self.valkey)["master_repl_offset"]
        return facts(replica)["slave_repl_offset"] == written

    def _wait_changes(self, job_id: str) -> None:
        """Until the primary's ledger has changed some times, or the job is over."""
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
        try:
            super()._await_end(job_id)
        except NotSucceededError as error:
            if not self._may_fail:
                raise
            self._reason = str(error)

    def _judge(self, outcome: Outcome, job_id: str, expected: Path, follower: Follower) -> None:
        if not self._reason:
            super()._judge(outcome, job_id, expected, follower)
            return
        outcome.ended = self._reason
        if not self._reason.startswith(f"job {job_id} ended failed "):
            outcome.faults.append(f"no reason is named: {self._reason}")
        self._judge_strays(outcome)
        with self._platform.client(retry_for_s=PATIENCE_S) as client:
            client.resume(job_id)
        self._may_fail = False
        self._await_end(job_id)
        # The earlier life may have published the same versions.
        versions = sorted(set(follower.versions()) | set(Follower(self._platform, job_id).ended()))
        outcome.compare(self._platform.run_dir(job_id), expected, versions)
        self._judge_strays(outcome)


def facts(server: Valkey) -> dict[str, Any]:
    """What a server says of its replication."""
    with redis.Redis(port=server.port, socket_timeout=10) as client:
        return client.info("replication")
