"""What each process of a job had of the processors during its steps, as /proc counts it.

Owns the thread that looks whenever a step's line is written. ``computed`` is time on a core;
``waited`` is time ready to run on none, which is what sharing cores costs.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.processes import name_of, naming

LOOK_S = 0.1
AGAIN_S = 2.0
"""Between looks without a new line: a job may end with its last step."""
_TRAIN_LINE = re.compile(r'"kind": ?"train"')
Seconds = tuple[float, float]
"""Computed and waited."""


class StepTimes:
    """The processes of the job whose command lines name ``folder``. Use ``during``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: list[Mapping[str, Seconds]] = []
        self._ends = threading.Event()

    @contextmanager
    def during(self) -> Generator[None]:
        """Look at them while the block runs the job."""
        thread = threading.Thread(target=self._watch, name="step-times")
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def per_step(self) -> dict[str, dict[str, float]]:
        """Mean seconds of a step after the first, by process; empty if fewer than two ended."""
        if len(self._seen) < 2:
            return {}
        first, last, num = self._seen[0], self._seen[-1], len(self._seen) - 1
        return {
            name: {
                "computed_s": round((last[name][0] - first[name][0]) / num, 2),
                "waited_s": round((last[name][1] - first[name][1]) / num, 2),
            }
            for name in sorted(first.keys() & last.keys())
        }

    def _watch(self) -> None:
        newest, looked_at = self._look(), time.monotonic()
        while not self._ends.wait(LOOK_S):
            num_steps, now = self._num_steps(), time.monotonic()
            if num_steps > len(self._seen) or now > looked_at + AGAIN_S:
                newest, looked_at = self._look() or newest, now
            if num_steps > len(self._seen):
                self._seen.append(newest)
        if self._num_steps() > len(self._seen):  # the job ended with its last step
            self._seen.append(newest)

    def _num_steps(self) -> int:
        lines = [file.read_text("utf-8") for file in self._folder.glob("*/metrics.jsonl")]
        return sum(len(_TRAIN_LINE.findall(text)) for text in lines)

    def _look(self) -> dict[str, Seconds]:
        totals: defaultdict[str, Seconds] = defaultdict(lambda: (0.0, 0.0))
        for pid in naming(str(self._folder).encode()):
            try:
                name, (computed, waited) = name_of(pid).split()[0], _seconds_of(pid)
            except (OSError, IndexError):  # it has just ended
                continue
            totals[name] = (totals[name][0] + computed, totals[name][1] + waited)
        return dict(totals)


def _seconds_of(pid: int) -> Seconds:
    """Of all threads of a process."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    fields = [[int(word) for word in stat.split()] for stat in stats]
    return sum(f[0] for f in fields) / 1e9, sum(f[1] for f in fields) / 1e9
