"""A platform on a small file system that somebody else's file fills, with nothing injected.

Whatever process meets ENOSPC first: the job waits, says so while the disk is full, and goes on by
itself when there is room.
"""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from chaos_cases import LOW_ROOM, Case
from chaos_outcome import Outcome
from chaos_world import ChaosWorld
from follower import Follower
from process_tree import wait_for
from small_disk import Ballast

from troupe.errors import TroupeError

SIZE_BYTES = 256 << 20
LOW_BYTES = 20 << 20
"""Less than a tenth of the disk, at which no step begins, and more than what Redis stops at."""
HELD_S = 15.0
ANSWER_S = 8.0
"""REST answers so soon on a full disk, also while Redis is started anew."""


class FullDiskWorld(ChaosWorld):
    """``ballast`` fills the platform's disk. ``kept`` says whether Redis lies on it too."""

    ballast: Ballast
    _unsaid: str = ""

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Fill the disk, let everybody go on, listen to what REST says, and make room."""
        leave = LOW_BYTES if case.how == LOW_ROOM else 0
        self.ballast.fill(leave_bytes=leave)
        os.kill(stander, signal.SIGCONT)
        holding = threading.Thread(
            target=self.ballast.hold, args=(HELD_S,), kwargs={"leave_bytes": leave}
        )
        holding.start()
        self._unsaid = "" if self._says_so(job_id) else "REST did not say that the disk is full"
        holding.join()
        self.ballast.free()
        return time.time(), stander

    def _says_so(self, job_id: str) -> bool:
        """Whether the job is shown as running and waiting for room before the disk has any."""

        def is_said() -> bool:
            with suppress(TroupeError), self._platform.client(retry_for_s=0) as client:
                waiting = client.progress(job_id).waiting
                return (
                    client.job(job_id).state == "running"
                    and waiting.phase == "disk"
                    and "MiB free" in waiting.sentence
                )
            return False

        try:
            wait_for("REST to say that the disk is full", is_said, within_s=ANSWER_S)
        except AssertionError:
            return False
        return True

    def _serves(self, case: Case, job_id: str, hit_at: float, old: int, follower: Follower) -> bool:
        return follower.first_after(hit_at, {"router", "trainer"}) is not None

    def _judge(self, outcome: Outcome, job_id: str, expected: Path, follower: Follower) -> None:
        super()._judge(outcome, job_id, expected, follower)
        said = [e.type for _, e in follower.events]
        checks = {
            self._unsaid: not self._unsaid,
            "no event disk.low": said.count("disk.low") == 1,
            "no event disk.resolved": said.count("disk.resolved") == 1,
        }
        outcome.faults += [words for words, holds in checks.items() if not holds]

    def _clean_up(self, job_id: str) -> None:
        self.ballast.free()
        super()._clean_up(job_id)
