"""The cells of `benchmarks.learning_curve`: one training run each, and what is kept of it.

A finished cell is one line of a JSON-lines file, which is read before anything is played: a cell
that stands there, of the same job and base model, is never repeated. Lines are only ever added.
"""

import fcntl
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.backends.cpu import get_cpu_capability

from benchmarks.budget_runs import BudgetRun
from benchmarks.learning_arms import ARMS, Setting, Task, spec_of
from benchmarks.processes import cpu_s, family
from benchmarks.report import commit, machine

TEMPERATURES = (1.0, 0.0)
MAX_STEPS = 2000


@dataclass(frozen=True)
class Cell:
    """One run. Example: ``str(Cell("plan_path", "grpo", Setting(1e-3, 8), 100, 40))``.

    ``steps`` 0: a run of tuning, which ends when the budget of tokens is spent.
    """

    task: str
    arm: str
    setting: Setting
    seed: int
    steps: int = 0

    def named(self, digest: str) -> str:
        """The name of its line: a cell of another job or base has another one."""
        return f"{self}@{digest}"

    def __str__(self) -> str:
        tuning = f"tune-{self.seed}" if self.seed else "tune"
        phase = f"final-{self.seed}" if self.steps else tuning
        return f"{self.task}:{self.arm}:{self.setting.rate:g}:{self.setting.tasks_per_step}:{phase}"


@dataclass(frozen=True)
class Budget:
    """Equal for all cells of a task."""

    tokens: int
    eval_tasks: int
    test_tasks: int
    timeout_s: float


class RunFailed(Exception):  # noqa: N818 (one cell's, not the program's)
    """A run ended before its budget."""


@dataclass
class Cells:
    """The finished cells of one file.

    ``curve`` of a line: [steps, tokens sampled, CPU seconds of all processes, held-out success] at
    each evaluation. ``test``: temperature -> a digit a test task, 1 for success.
    """

    path: Path
    lines: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def __post_init__(self) -> None:
        if self.path.is_file():
            for text in self.path.read_text("utf-8").splitlines():
                line = json.loads(text)
                self.lines[line["cell"]] = line

    def keep(self, line: dict[str, Any]) -> None:
        """Append, whole and synced; another command may append to the same file."""
        self.lines[line["cell"]] = line
        with self.path.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def settings(self, task: str, arm: str) -> list[Setting]:
        """Every setting of which the arm has a line, lowest first."""
        names = [name.split(":") for name in self.lines if name.startswith(f"{task}:{arm}:")]
        found = {Setting(float(rate), int(tasks)) for _, _, rate, tasks, _ in names}
        return sorted(found, key=lambda x: (x.rate, x.tasks_per_step))

    def base_of(self, task: str) -> str | None:
        """The digest of the base that the task's newest line was trained from."""
        found = [x["base"] for name, x in self.lines.items() if name.startswith(f"{task}:")]
        return found[-1] if found else None


def make_model(task: Task, path: Path, quick: Mapping[str, Any] | None = None) -> Path:
    """The base model that all arms begin with; made once."""
    if not (path / "manifest.json").is_file():
        command = [sys.executable, "-m", "troupe_trainer.tiny_model", "--task", task.family]
        params = {name: value for name, value in task.params.items() if name != "size"}
        command += ["--size", str(task.params["size"]), "--params", json.dumps(params)]
        for flag, value in (task.base | dict(quick or {})).items():
            command += [flag, json.dumps(value)]
        subprocess.run([*command, "--out", str(path)], check=True, stdout=sys.stderr)
    return path


def job_of(cell: Cell, task: Task, model: Path, budget: Budget) -> dict[str, Any]:
    """The spec of the cell."""
    return spec_of(
        cell.arm,
        ARMS[cell.arm],
        task,
        model,
        cell.setting,
        cell.seed,
        steps=cell.steps or MAX_STEPS,
        eval_tasks=budget.eval_tasks,
    )


def base_digest(model: Path) -> str | None:
    """Of a base model's weights; None where it was not made here."""
    weights = model / "model.safetensors"
    return hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else None


def digest_of(cell: Cell, task: Task, model: Path, base: str, budget: Budget) -> str:
    """Of the job, its base model's weights and its budget, and of a final run's test tasks; not of
    where they lie.
    """
    document = job_of(cell, task, model, budget)
    text = json.dumps(document).replace(str(model.absolute()), base)
    amounts = (budget.tokens, budget.eval_tasks, budget.test_tasks)
    tests = f" from {task.first_test}" if cell.steps else ""
    return hashlib.sha256(f"{text} {amounts}{tests}".encode()).hexdigest()[:16]


def play(
    cell: Cell,
    task: Task,
    model: Path,
    folder: Path,
    budget: Budget,
    *,
    port_base: int,
    stopped: threading.Event,
) -> dict[str, Any]:
    """Train, and play the test tasks where the cell is no tuning: the line to keep.

    Raises RunFailed, also when ``stopped`` is set; the logs stay in ``folder`` then.
    """
    document, base = job_of(cell, task, model, budget), base_digest(model)
    if base is None:
        raise RunFailed(f"there is no base model in {model}")
    shutil.rmtree(folder, ignore_errors=True)
    run = BudgetRun(folder, document)
    began = time.monotonic()
    curve = _train(run, budget, port_base, stopped, ends_by_itself=cell.steps > 0)
    line: dict[str, Any] = {
        "cell": cell.named(digest_of(cell, task, model, base, budget)),
        "base": base,
        "commit": commit(),
        "machine": _machine(),
        "wall_s": round(time.monotonic() - began, 1),
        "algorithm": ARMS[cell.arm].algorithm,
        "curve": curve,
        "steps_at_budget": run.steps_at(budget.tokens),
    }
    if cell.steps:
        team = next((folder / "runs").glob("*/metrics.jsonl")).parent
        line["test"] = _tests(["--team", str(team)], folder, budget, task.first_test)
    shutil.rmtree(folder)
    return line


def play_model(
    task: Task, seats: Sequence[str], model: Path, folder: Path, budget: Budget
) -> dict[str, Any]:
    """The test tasks, played by ``seats`` with one model, as a base's is: the line to keep."""
    folder.mkdir(parents=True, exist_ok=True)
    played = ["--task", task.family, "--params", json.dumps(task.params), "--policy", str(model)]
    played += ["--agents", ",".join(seats), "--max-turns", str(task.max_turns)]
    played += ["--max-new-tokens", str(task.max_new_tokens)]
    tests = _tests(played, folder, budget, task.first_test)
    shutil.rmtree(folder)
    return {"base": base_digest(model), "commit": commit(), "machine": _machine(), "test": tests}


def _machine() -> str:
    """With the vector instructions, which results follow to the last digit."""
    return f"{machine()}, {get_cpu_capability()}"


def _tests(team: Sequence[str], folder: Path, budget: Budget, first: int) -> dict[str, str]:
    return {f"{t:g}": _test(team, folder, t, budget, first) for t in TEMPERATURES}


def _train(
    run: BudgetRun,
    budget: Budget,
    port_base: int,
    stopped: threading.Event,
    *,
    ends_by_itself: bool,
) -> list[list[float]]:
    spent: dict[int, float] = {}
    cpu_at: dict[int, float] = {}

    def watch(pid: int) -> None:
        spent.update(_cpu(pid, spent))
        for step, _, _ in run.curve():
            cpu_at.setdefault(step, round(sum(spent.values()), 1))

    tokens = math.inf if ends_by_itself else budget.tokens
    status = run.train(tokens, budget.timeout_s, port_base=port_base, watch=watch, stopped=stopped)
    is_whole = status == 0 if ends_by_itself else run.is_done(budget.tokens)
    if not is_whole:
        raise RunFailed(f"it ended before its budget; look at {run.folder / 'train.log'}")
    whole = round(sum(spent.values()), 1)
    return [
        [step, sampled, cpu_at.get(step, whole), success] for step, sampled, success in run.curve()
    ]


def _cpu(pid: int, before: Mapping[int, float]) -> dict[int, float]:
    """Processor time by process; of one that has ended, the last that was seen."""
    try:
        return {p: max(cpu_s(p), before.get(p, 0.0)) for p in family(pid)}
    except (OSError, IndexError):
        return {}


def _test(team: Sequence[str], folder: Path, temperature: float, budget: Budget, first: int) -> str:
    """A digit for each test task: 1 where ``team``, in flags of ``troupe eval``, solves it."""
    out = folder / f"test-{temperature:g}"
    command = [sys.executable, "-m", "troupe.cli", "eval", *team, "--json"]
    command += ["--n", str(budget.test_tasks), "--temperature", f"{temperature:g}", "--out"]
    command += [str(out), "--split", "test", "--first-task", str(first)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=budget.timeout_s,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        (folder / "test.log").write_text(done.stderr)
        raise RunFailed(f"its test tasks were not played; look at {folder / 'test.log'}")
    lines = [json.loads(text) for text in (out / "episodes.jsonl").read_text().splitlines()]
    solved = {line["task_index"]: bool(line["is_success"]) for line in lines}
    return "".join("01"[solved[index]] for index in range(first, first + budget.test_tasks))


def at(curve: Sequence[Sequence[float]], column: int, amount: float) -> float:
    """Held-out success when ``amount`` of a column was spent, between the evaluations around it."""
    before = [point for point in curve if point[column] <= amount][-1]
    after = next((point for point in curve if point[column] > amount), before)
    span = after[column] - before[column]
    share = (amount - before[column]) / span if span else 0.0
    return before[3] + share * (after[3] - before[3])
