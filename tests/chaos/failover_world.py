"""A platform on a Valkey with a replica, which takes its place behind the proxy.

Replication is asynchronous, so a replica may lack what the primary had answered. A fail-over that
loses nothing must not be noticed; one that loses writes is judged as any loss of writes.
"""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import redis
from chaos_cases import LOSSY, Case
from lost_writes_world import LostWritesWorld
from process_tree import wait_for
from wired_world import FAR, Valkey, WiredWorld


class FailoverWorld(LostWritesWorld, WiredWorld):
    """``valkey`` is the primary now; ``make_valkey`` makes a server that is not started yet."""

    kept = WiredWorld.kept
    make_valkey: Callable[[], Valkey]

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Promote a replica that has everything, or one that was cut off moments ago."""
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


def facts(server: Valkey) -> dict[str, Any]:
    """What a server says of its replication."""
    with redis.Redis(port=server.port, socket_timeout=10) as client:
        return client.info("replication")
