"""A platform each of whose processes has a clock that can be set."""

import os
import signal
import time
from pathlib import Path

from chaos_cases import COMPONENTS, FORWARD, Case
from chaos_world import ChaosWorld
from follower import Follower

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
)
"""Where distributions put libfaketime (Debian and Ubuntu: package `faketime`)."""
JUMP_S = 3700
"""More than an hour, which is the longest limit of a step by default."""
NOTICED_S = 1.5
"""The library looks at its file once a second."""


def find_library() -> str:
    """libfaketime on this machine; empty when there is none."""
    return next((name for name in LIBRARIES if Path(name).is_file()), "")


class ClockWorld(ChaosWorld):
    """``clocks`` holds one file for each role: the seconds that its clock is off."""

    clocks: Path

    def set_all(self) -> None:
        """Every clock is right."""
        for role in COMPONENTS:
            self._set(role, 0)

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Set the victim's clock, which stays wrong until the job has ended."""
        self._set(case.victim, JUMP_S if case.how == FORWARD else -JUMP_S)
        time.sleep(NOTICED_S)
        hit_at = time.time()
        os.kill(stander, signal.SIGCONT)
        return hit_at, stander

    def _set(self, role: str, offset_s: int) -> None:
        new = self.clocks / f".{role}.new"
        new.write_text(f"{offset_s:+d}\n")
        new.replace(self.clocks / role)

    def _serves(self, case: Case, job_id: str, hit_at: float, old: int, follower: Follower) -> bool:
        """Its own word for the time means nothing now: the job goes on."""
        return follower.first_after(hit_at, {"router", "trainer"}) is not None

    def _clean_up(self, job_id: str) -> None:
        super()._clean_up(job_id)
        self.set_all()
