"""Runs of training that end when they have sampled a budget, to compare at equal tokens."""

import concurrent.futures
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from benchmarks.processes import end_run

Run = TypeVar("Run")


class RunPool:
    """Plays runs, several at once, until the time is up; a stop ends those that are under way.

    Each has ports of its own, from ``first_port`` on: two platforms that begin together would find
    the same ones free.
    """

    def __init__(self, workers: int, first_port: int, minutes: float) -> None:
        self.stopped = threading.Event()
        self._workers = workers
        self._ends_at = time.monotonic() + 60.0 * minutes
        self._port_bases = queue.SimpleQueue[int]()
        for worker in range(workers):
            self._port_bases.put(first_port + 100 * worker)

    def left_s(self) -> float:
        """Seconds until no run is begun; 0 after a stop."""
        return 0.0 if self.stopped.is_set() else max(0.0, self._ends_at - time.monotonic())

    def play(
        self, phases: Sequence[Callable[[], Iterable[Run]]], play: Callable[[Run, int], None]
    ) -> None:
        """``play(run, port_base)`` of every run; a phase is asked for its runs after the last."""

        def one(run: Run) -> None:
            if not self.left_s():
                return
            port_base = self._port_bases.get()
            try:
                play(run, port_base)
            finally:
                self._port_bases.put(port_base)

        with concurrent.futures.ThreadPoolExecutor(self._workers) as pool:
            try:
                for phase in phases:
                    list(pool.map(one, list(phase())))
            finally:
                self.stopped.set()


class BudgetRun:
    """One run of training, in one folder, which later calls go on with."""

    def __init__(self, folder: Path, document: Mapping[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.spec = folder / "spec.yaml"
        text = yaml.safe_dump(dict(document))
        if self.spec.is_file() and self.spec.read_text() != text:
            raise SystemExit(
                f"{self.spec} is of another job: move its folder away, or name another"
            )
        self.spec.write_text(text)

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Of the run's metrics so far."""
        return [line for line in self._read("metrics.jsonl") if line["kind"] == kind]

    def tokens(self, steps: float = math.inf) -> int:
        """Sampled in the first ``steps`` steps."""
        by_step = {line["step"]: line["num_tokens"] for line in self.lines("train")}
        return sum(number for step, number in by_step.items() if step < steps)

    def steps_at(self, tokens: int) -> int:
        """The first number of steps that sampled so many; all of them where none did."""
        whole = len({line["step"] for line in self.lines("train")})
        return next((n for n in range(1, whole) if self.tokens(n) >= tokens), whole)

    def curve(self) -> list[tuple[int, int, float]]:
        """Steps, tokens and held-out success at each evaluation."""
        evals = {line["step"]: line["success"] for line in self.lines("eval")}
        return [(step, self.tokens(step), success) for step, success in sorted(evals.items())]

    def evaluated(self, step: int) -> Iterator[dict[str, Any]]:
        """The lines of held-out episodes after ``step`` steps."""
        for line in self._read("episodes.jsonl"):
            if line["kind"] == "eval" and line["step"] == step:
                yield line

    def solved(self, budget: int, measure: str = "is_success") -> dict[str, float] | None:
        """Held-out task -> its ``measure`` at the budget; None before evaluations are around it.

        Between those two evaluations, so a success may be a share. Without the tasks whose episode
        was dropped in one of them.
        """
        curve = self.curve()
        after = next((point for point in curve if point[1] >= budget), None)
        before = next((point for point in reversed(curve) if point[1] <= budget), None)
        if before is None or after is None:
            return None
        (first, low, _), (last, high, _) = before, after
        share = (budget - low) / (high - low) if high > low else 0.0
        old, new = (
            {
                line["task_id"]: float(line[measure])
                for line in self.evaluated(step)
                if "dropped_reason" not in line
            }
            for step in (first, last)
        )
        both = sorted(old.keys() & new.keys())
        return {task: (1 - share) * old[task] + share * new[task] for task in both}

    def is_done(self, budget: float) -> bool:
        """Whether an evaluation stands at the budget or after it."""
        return any(tokens >= budget for _, tokens, _ in self.curve())

    def train(
        self,
        budget: float,
        seconds: float,
        *,
        port_base: int | None = None,
        stopped: threading.Event | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> int:
        """Go on until the budget is sampled, the time is over, or ``stopped`` is set.

        ``watch`` is told the process's id twice a second. Returns the exit status: 0 where all
        steps of the job are done.
        """
        runs, deadline = self.folder / "runs", time.monotonic() + seconds
        run = next(iter(runs.glob("*/spec.json")), None)
        command = [sys.executable, "-m", "troupe.cli", "train"]
        command += ["--resume", str(run.parent)] if run else [str(self.spec)]
        command += ["--port-base", str(port_base)] if port_base is not None else []
        # Last, so that the platform's processes are known by it.
        command += ["--ports", "auto", "--json", "--runs-dir", str(runs)]
        stopped = stopped or threading.Event()
        with (self.folder / "train.log").open("a") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
            try:
                while process.poll() is None and time.monotonic() < deadline:
                    ends = stopped.wait(0.5)
                    if watch is not None:
                        watch(process.pid)
                    if ends or self.is_done(budget):
                        break
            finally:
                end_run(process)
        return process.returncode

    def _read(self, name: str) -> Iterator[dict[str, Any]]:
        """The lines of the run's file; a torn last one is not read."""
        for file in self.folder.glob(f"runs/*/{name}"):
            text = file.read_text("utf-8")
            yield from map(json.loads, text[: text.rfind("\n") + 1].splitlines())
