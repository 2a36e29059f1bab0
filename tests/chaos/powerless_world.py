"""A platform on a machine that loses its power, and with it whatever was not synced."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from chaos_cases import TORN, Case
from chaos_outcome import Outcome
from chaos_world import ChaosWorld
from follower import Follower
from platform_world import Platform
from power_cut import LossyDisk
from process_tree import descendants, wait_for

_SAME = ("num_episodes", "success_rate", "reward_mean", "num_groups", "num_tokens", "success")
"""Metrics that follow from a job's spec and seed alone."""


class PowerlessWorld(ChaosWorld):
    """Runs cases whose victim is the machine."""

    def __init__(
        self,
        platform: Platform,
        faults: Path,
        results: Path | None,
        elders: frozenset[int],
        disk: LossyDisk,
    ) -> None:
        super().__init__(platform, faults, results, elders)
        self._disk = disk

    def _inject(self, case: Case, job_id: str, stander: int) -> tuple[float, int]:
        """Every process ends in one moment, what was not synced is lost, the machine starts."""
        self.lose_power(Random(case.id) if case.how == TORN else None)
        (self._faults / f"{case.phase.point}.{stander}").unlink(missing_ok=True)
        hit_at = time.time()
        started = self._platform.troupe("up")
        assert started.returncode == 0, f"the platform does not start: {started.stderr}"
        return hit_at, stander

    def lose_power(self, random: Random | None) -> None:
        """Kill everything of this platform and cut the disk."""
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self._own():
                with suppress(ProcessLookupError):
                    os.kill(pid, sign)
        wait_for("every process is dead", lambda: not self._own(), within_s=30)
        self._disk.cut(random)

    def _own(self) -> set[int]:
        others = set(self._elders)
        for elder in self._elders:
            others |= descendants(elder)
        return descendants(os.getpid()) - others

    def _serves(self, case: Case, job_id: str, hit_at: float, old: int, follower: Follower) -> bool:
        return self._router_answers() and follower.first_after(hit_at, {"router"}) is not None

    def _judge(self, outcome: Outcome, job_id: str, expected: Path, follower: Follower) -> None:
        super()._judge(outcome, job_id, expected, follower)
        if _values(self._platform.run_dir(job_id)) != _values(expected):
            outcome.faults.append("metrics.jsonl has other values")
        lost = [event.data for _, event in follower.events if event.type == "records.lost"]
        if lost:
            outcome.faults.append(f"records.lost: {lost}")


def _values(run_dir: Path) -> dict[tuple[str, int], list[Any]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return {(x["kind"], x["step"]): [x.get(name) for name in _SAME] for x in lines}
