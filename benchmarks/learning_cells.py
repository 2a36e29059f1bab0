"""The cells of `benchmarks.learning_curve`: one training run each, and what is kept of it.

A finished cell is one line of a JSON-lines file, which is read before anything is played: a cell
that stands there, of the same job and base model, is never repeated. Lines are only ever added.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.learning_arms import ARMS, Setting, Task, spec_of
from benchmarks.processes import cpu_s, end_run, family
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

    def base_of(self, task: str) -> str | None:
        """The digest of the base that the task's newest line was trained from."""
        found = [x["base"] for name, x in self.lines.items() if name.startswith(f"{task}:")]
        return found[-1] if found else None


def make_model(task: Task, folder: Path, quick: Mapping[str, Any] | None = None) -> Path:
    """The base model that all arms begin with; made once."""
    path = folder / "base"
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


def digest_of(document: Mapping[str, Any], model: Path, base: str, budget: Budget) -> str:
    """Of the job, its base model's weights and its budget; not of where they lie."""
    text = json.dumps(document).replace(str(model.absolute()), base)
    amounts = (budget.tokens, budget.eval_tasks, budget.test_tasks)
    return hashlib.sha256(f"{text} {amounts}".encode()).hexdigest()[:16]


def play(
    cell: Cell, task: Task, model: Path, folder: Path, budget: Budget, *, port_base: int
) -> dict[str, Any]:
    """Train, and play the test tasks where the cell is no tuning: the line to keep.

    Raises RunFailed; the logs stay in ``folder`` then.
    """
    document, base = job_of(cell, task, model, budget), base_digest(model)
    if base is None:
        raise RunFailed(f"there is no base model in {model}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(yaml.safe_dump(document))
    began = time.monotonic()
    curve = _train(folder, budget, port_base, ends_by_itself=cell.steps > 0)
    line: dict[str, Any] = {
        "cell": cell.named(digest_of(document, model, base, budget)),
        "base": base,
        "commit": commit(),
        "machine": machine(),
        "wall_s": round(time.monotonic() - began, 1),
        "algorithm": ARMS[cell.arm].algorithm,
        "curve": curve,
        "steps_at_budget": _steps_at(folder, budget.tokens),
    }
    if cell.steps:
        run = next((folder / "runs").glob("*/metrics.jsonl")).parent
        line["test"] = _tests(["--team", str(run)], folder, budget, task.first_test)
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
    return {"base": base_digest(model), "commit": commit(), "machine": machine(), "test": tests}


def _tests(team: Sequence[str], folder: Path, budget: Budget, first: int) -> dict[str, str]:
    return {f"{t:g}": _test(team, folder, t, budget, first) for t in TEMPERATURES}


def _train(
    folder: Path, budget: Budget, port_base: int, *, ends_by_itself: bool
) -> list[list[float]]:
    runs = folder / "runs"
    command = [sys.executable, "-m", "troupe.cli", "train", str(folder / "spec.yaml"), "--json"]
    # Last, so that `family` knows the platform's processes by it.
    command += ["--port-base", str(port_base), "--ports", "auto", "--runs-dir", str(runs)]
    spent: dict[int, float] = {}
    cpu_at: dict[int, float] = {}
    with (folder / "train.log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        deadline = time.monotonic() + budget.timeout_s
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.5)
                spent |= _cpu(process.pid, spent)
                evals = _evals(runs)
                for step in evals:
                    cpu_at.setdefault(step, round(sum(spent.values()), 1))
                if not ends_by_itself and evals and _tokens(runs, max(evals)) >= budget.tokens:
                    break
        finally:
            end_run(process)
    evals = _evals(runs)
    is_whole = process.returncode == 0 if ends_by_itself else bool(evals)
    if not is_whole or (not ends_by_itself and _tokens(runs, max(evals)) < budget.tokens):
        raise RunFailed(f"it ended before its budget; look at {folder / 'train.log'}")
    whole = round(sum(spent.values()), 1)
    return [
        [step, _tokens(runs, step), cpu_at.get(step, whole), success]
        for step, success in sorted(evals.items())
    ]


def _cpu(pid: int, before: Mapping[int, float]) -> dict[int, float]:
    """Processor time by process; of one that has ended, the last that was seen."""
    try:
        return {p: max(cpu_s(p), before.get(p, 0.0)) for p in family(pid)}
    except (OSError, IndexError):
        return {}


def _lines(runs: Path) -> list[dict[str, Any]]:
    """Of the only run's metrics; a torn last line is not read."""
    files = list(runs.glob("*/metrics.jsonl"))
    if not files:
        return []
    text = files[0].read_text("utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _evals(runs: Path) -> dict[int, float]:
    """Steps done -> held-out success."""
    return {x["step"]: x["success"] for x in _lines(runs) if x["kind"] == "eval"}


def _tokens(runs: Path, steps: int) -> int:
    """Sampled in the first ``steps`` steps, by all policies."""
    trained = [x for x in _lines(runs) if x["kind"] == "train"]
    by_step = {x["step"]: x["num_tokens"] for x in trained}
    return sum(number for step, number in by_step.items() if step < steps)


def _steps_at(folder: Path, tokens: int) -> int:
    """The first number of steps that sampled the budget; all of them where none did."""
    steps = sorted({x["step"] for x in _lines(folder / "runs") if x["kind"] == "train"})
    whole = len(steps)
    return next((n for n in range(1, whole) if _tokens(folder / "runs", n) >= tokens), whole)


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
