"""AT-GRPO beside its rivals and parts, each tuned alike: success over tokens, updates, CPU time.

Run: ``python -m benchmarks.learning_curve [--quick]``. Every arm trains the same base on the same
tasks through the whole local platform. First each setting of an arm (four learning rates, two
sizes of a step) is run once until the budget of sampled tokens is spent, and measured on validation
tasks; its three best settings are run with two seeds more. Then the setting with the best mean of
three seeds is run with fresh ones, for as many steps as it needed (median), and the trained team
plays the test tasks at temperature 1 and greedily. Arms:

- ``at_grpo``; ``at_grpo_random`` goes on from a random candidate (what best-of-K adds at one rate);
  ``at_grpo_no_entropy`` has no entropy bonus, as ``best_of_k`` has none; ``at_grpo_positive``
  learns from advantages above 0 alone; ``at_grpo_unscaled`` does not divide by a group's deviation;
- ``turn_grpo``: whole episodes, the same rewards a turn as reward-to-go; ``turn_grpo_team``: of
  the team's alone, no agent's own terms; ``turn_grpo_now``: all that is paid until the agent's
  next act, and nothing after it; ``turn_grpo_act``: what the act itself is paid, as in AT-GRPO
  (``at_grpo_random`` less it: the tree);
- ``grpo``: whole episodes and the return of all rewards; ``grpo_team``: of the team's alone;
  ``magrpo``; ``ippo``: the team's rewards-to-go less a critic of its own;
- ``best_of_k``: the best candidate is imitated; ``_L0``: one agent; ``_L2``, ``_L3``: own weights.

Fourteen runs of tuning an arm, eight fresh seeds after them; all share one base. A cell is one run,
kept as a line of ``results/learning_cells.jsonl`` and never repeated: stop the command and call it
again, or run a part (``--arms``, ``--tasks``, ``--minutes``; ``--setting 5e-4:8`` plays what tuning
did not choose, in a table of its own, for as many steps as tuning needed there, or one run of it
where there was no tuning; ``--results`` names another folder, for another base: it may hold the
weights as ``bases/TASK``, since another processor makes others). ``--report`` only makes tables and
plot. The last line is one JSON object; exits 0 whatever the curves show.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median_low
from typing import Any

from benchmarks.budget_runs import RunPool
from benchmarks.learning_arms import ARMS, TASKS, Setting, settings_of
from benchmarks.learning_cells import (
    Budget,
    Cell,
    Cells,
    RunFailed,
    at,
    base_digest,
    digest_of,
    make_model,
    play,
    play_model,
)
from benchmarks.learning_report import contrasts_of, draw, pairs_of, rows_of, write_page
from benchmarks.report import clean_up_on_sigterm, commit, goal, machine

RESULTS = Path(__file__).parent / "results"
FIRST_PORT = 18_000
FIRST_SEED = 200
"""Of the final runs; seeds from 100 on are those of an earlier experiment, whose results are known
(results/learning_curve_older.md)."""
TUNING_SEEDS = (0, 1, 2)
"""All settings are run with the first, an arm's ``FINALISTS`` with the others too."""
FINALISTS = 3
QUICK_MODEL = {
    "--shape": {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "intermediate_size": 128},
    "--warm-start": {"num_careful_steps": 60, "num_careless_steps": 0, "batch_size": 32},
}
QUICK_STEPS = 2


class Experiment:
    """The plan, the finished cells, and what is to be played next.

    ``--tasks`` and ``--arms`` choose what is played; tables are made of all that is there.
    """

    def __init__(self, plan: argparse.Namespace) -> None:
        self._plan = plan
        self.cells = Cells(plan.results / "learning_cells.jsonl")
        self._pool = RunPool(plan.workers, FIRST_PORT, plan.minutes)
        self._names: dict[tuple[Cell, str], str] = {}
        bases = {name: base_digest(self._model(name)) for name in TASKS}
        # Tables need no model: elsewhere they are of the bases that the lines name.
        self._bases = {name: base or self.cells.base_of(name) for name, base in bases.items()}

    def run(self) -> None:
        """Play what is missing, tuning first, until the time is up."""
        chosen = [x for x in arms() if x[0] in self._plan.tasks and x[1] in self._plan.arms]
        phases = [lambda: self.first(chosen), lambda: self._again(chosen)]
        # Few seeds at a time, so that a stop leaves all arms alike; enough for every worker.
        seeds, few = self._seeds(), -(-self._plan.workers // max(1, len(chosen)))
        for i in range(0, len(seeds), few):
            phases.append(lambda these=seeds[i : i + few]: self._finals(chosen, these))
        self._pool.play(phases, self._play)

    def missing(self) -> list[str]:
        """Cells that the plan names and that are not there; finals by arm where it is not tuned."""
        names = [str(cell) for cell in self._tuning_cells() if self._find(cell) is None]
        for task, arm in arms():
            for seed in self._seeds():
                cell = self._final(task, arm, seed)
                if cell is None or self._find(cell) is None:
                    names.append(str(cell) if cell else f"{task}:{arm}:final-{seed}")
        return names

    def tuned(self) -> dict[str, dict[str, Any]]:
        """Cell of tuning -> its line, of those that are there, also of settings outside of it."""
        cells = self._tuning_cells()
        cells += [Cell(*of, setting, 0) for of in arms() for setting in self._settings(*of)]
        found = {str(cell): self._find(cell) for cell in cells}
        return {name: line for name, line in found.items() if line is not None}

    def finals(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """(task, arm) -> its finished lines by seed, where there are any."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for task, arm in arms():
            for seed in self._seeds():
                cell = self._final(task, arm, seed)
                if cell and (line := self._find(cell)):
                    found.setdefault((task, arm), []).append({**line, "seed": seed})
        return found

    def others(self) -> dict[tuple[str, str, Setting], list[dict[str, Any]]]:
        """(task, arm, setting) -> finished lines of settings that tuning did not choose."""
        found: dict[tuple[str, str, Setting], list[dict[str, Any]]] = {}
        for task, arm in [] if self._plan.quick else arms():
            for setting, seed in product(self._settings(task, arm), self._seeds()):
                cell = self._at_setting(task, arm, setting, seed)
                line = self._find(cell) if cell else None
                if line and cell != self._final(task, arm, seed):
                    found.setdefault((task, arm, setting), []).append({**line, "seed": seed})
        return found

    def _settings(self, task: str, arm: str) -> list[Setting]:
        """Those that the arm is tuned over, and others that were played."""
        tuned = list(settings_of(ARMS[arm]))
        return tuned + [x for x in self.cells.settings(task, arm) if x not in tuned]

    def _seeds(self) -> range:
        return range(FIRST_SEED, FIRST_SEED + self._plan.seeds)

    def first(self, of: Sequence[tuple[str, str]]) -> list[Cell]:
        """Tuning, of one setting alone where the plan names it."""
        if setting := self._plan.setting:
            return [Cell(task, arm, setting, 0) for task, arm in of]
        return list(self._tuning(of))

    def _tuning(self, of: Sequence[tuple[str, str]]) -> Iterator[Cell]:
        if not self._plan.quick:
            for task, arm in of:
                for setting in settings_of(ARMS[arm]):
                    yield Cell(task, arm, setting, 0)

    def _again(self, of: Sequence[tuple[str, str]]) -> Iterator[Cell]:
        """The finalists with the other seeds; seed by seed, so that a stop leaves all alike."""
        for seed, (task, arm) in product(TUNING_SEEDS[1:], of):
            for setting in self._finalists(task, arm):
                yield Cell(task, arm, setting, seed)

    def _tuning_cells(self) -> list[Cell]:
        return [*self._tuning(arms()), *self._again(arms())]

    def _finalists(self, task: str, arm: str) -> list[Setting]:
        """The best settings of the first seed, best first; none before all were tried."""
        settings = [] if self._plan.quick else list(settings_of(ARMS[arm]))
        found = {setting: self._score(task, arm, setting, TUNING_SEEDS[:1]) for setting in settings}
        scores = {setting: score for setting, score in found.items() if score is not None}
        if len(scores) < len(settings):
            return []
        return sorted(scores, key=lambda x: -scores[x])[:FINALISTS]

    def _score(self, task: str, arm: str, setting: Setting, seeds: Sequence[int]) -> float | None:
        """Mean success of validation tasks at the budget; None before all seeds were played."""
        lines = [self._find(Cell(task, arm, setting, seed)) for seed in seeds]
        found = [at(line["curve"], 1, self._plan.tokens[task]) for line in lines if line]
        return fmean(found) if len(found) == len(seeds) else None

    def _finals(self, of: Sequence[tuple[str, str]], seeds: Iterable[int]) -> Iterator[Cell]:
        for seed, (task, arm) in product(seeds, of):
            setting = self._plan.setting
            if cell := (
                self._at_setting(task, arm, setting, seed)
                if setting
                else self._final(task, arm, seed)
            ):
                yield cell

    def _final(self, task: str, arm: str, seed: int) -> Cell | None:
        """At the best of the finalists, by the mean of all seeds; None before that is known."""
        settings = list(settings_of(ARMS[arm]))
        if self._plan.quick:
            return Cell(task, arm, Setting(settings[0].rate, 4), seed, QUICK_STEPS)
        finalists = self._finalists(task, arm)
        means = {x: self._score(task, arm, x, TUNING_SEEDS) for x in finalists}
        scores = {setting: mean for setting, mean in means.items() if mean is not None}
        if not scores or len(scores) < len(finalists):
            return None
        best = max(scores, key=lambda x: scores[x])
        return Cell(task, arm, best, seed, median_low(self._steps(task, arm, best)))

    def _at_setting(self, task: str, arm: str, setting: Setting, seed: int) -> Cell | None:
        """Of a setting that is named, for the steps that it needed in tuning: the median or, where
        the arm was not tuned when its finals began, the first run's. None before the first run.
        """
        if not (steps := self._steps(task, arm, setting)):
            return None
        began = (Cell(task, arm, setting, each, steps[0]) for each in self._seeds())
        few = steps[0] if any(map(self._find, began)) else median_low(steps)
        return Cell(task, arm, setting, seed, few)

    def _steps(self, task: str, arm: str, setting: Setting) -> list[int]:
        """What each finished run of its tuning needed for the budget."""
        tried = [self._find(Cell(task, arm, setting, seed)) for seed in TUNING_SEEDS]
        return [line["steps_at_budget"] for line in tried if line]

    def _find(self, cell: Cell) -> dict[str, Any] | None:
        base = self._bases[cell.task]
        if base is None:
            return None
        if (cell, base) not in self._names:
            model, budget = self._model(cell.task), self._budget(cell.task)
            digest = digest_of(cell, TASKS[cell.task], model, base, budget)
            self._names[cell, base] = cell.named(digest)
        return self.cells.lines.get(self._names[cell, base])

    def _model(self, task: str) -> Path:
        kept = self._plan.results / "bases" / task
        return kept if kept.is_dir() else self._plan.work / task / "base"

    def _budget(self, task: str) -> Budget:
        plan = self._plan
        return Budget(plan.tokens[task], plan.eval_tasks, plan.test_tasks, plan.run_timeout_s)

    def make_models(self) -> None:
        """The base of each task that is to be played."""
        for name in self._plan.tasks:
            quick = QUICK_MODEL if self._plan.quick else None
            model = make_model(TASKS[name], self._model(name), quick)
            self._bases[name] = base_digest(model)
            for game, cell in self._base_cells(name).items():
                if cell not in self.cells.lines:
                    seats = GAMES[game].policies(TASKS[name])
                    folder = self._plan.work / name / f"base-{game.replace(' ', '-')}"
                    line = play_model(TASKS[name], list(seats), model, folder, self._budget(name))
                    self.cells.keep({"cell": cell, **line})

    def _base_cells(self, task: str) -> dict[str, str]:
        """Game -> the cell of the base's own test."""
        base, amount = self._bases[task] or "", self._plan.test_tasks
        tests = f"{amount}+{TASKS[task].first_test}"
        return {
            game: f"{task}:base:{game}:{tests}@{base[:16]}"
            for game, arm in GAMES.items()
            if arm.plays(TASKS[task])
        }

    def bases(self) -> dict[tuple[str, str], dict[str, Any]]:
        """(task, game) -> the line of the base's own test, of those that are there."""
        return {
            (task, game): line
            for task in TASKS
            for game, cell in self._base_cells(task).items()
            if (line := self.cells.lines.get(cell))
        }

    def _play(self, cell: Cell, port_base: int) -> None:
        if self._find(cell) is not None:
            return
        folder = self._plan.work / cell.task / str(cell).replace(":", "_")
        task, model, budget = TASKS[cell.task], self._model(cell.task), self._budget(cell.task)
        stopped = self._pool.stopped
        try:
            line = play(cell, task, model, folder, budget, port_base=port_base, stopped=stopped)
        # One cell that fails is missing; the others are played.
        except (RunFailed, subprocess.SubprocessError, OSError, LookupError, ValueError) as error:
            print(f"{cell}: {type(error).__name__}: {error}", file=sys.stderr)
            return
        self.cells.keep(line)
        shown = {"cell": str(cell), "success": line["curve"][-1][3], "wall_s": line["wall_s"]}
        print(json.dumps(shown), flush=True)


GAMES = {"in turn": ARMS["at_grpo"], "alone": ARMS["at_grpo_L0"]}
"""Game -> an arm that plays it; acts at once are another workflow, whose base is not tested."""


def arms() -> list[tuple[str, str]]:
    """Every task with every arm that plays it."""
    return [(task, arm) for task in TASKS for arm in ARMS if ARMS[arm].plays(TASKS[task])]


def _setting(text: str) -> Setting:
    rate, _, tasks = text.partition(":")
    return Setting(float(rate), int(tasks))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The plan of the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.learning_curve"
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=8, help="of the final runs")
    parser.add_argument(
        "--setting", type=_setting, help="play finals at RATE:TASKS, whatever tuning chose"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cell after so many")
    parser.add_argument("--workers", type=int, default=2, help="cells played at once")
    parser.add_argument("--report", action="store_true", help="play nothing")
    parser.add_argument("--results", type=Path, help="folder of cells, tables and plot")
    parser.add_argument("--tokens", type=int, help="sampled in training, a run, of every task")
    parser.add_argument("--eval-tasks", type=int, default=128, help="validation tasks")
    parser.add_argument("--test-tasks", type=int, default=500)
    parser.add_argument("--run-timeout-s", type=float, default=3600.0)
    parser.add_argument("--work", type=Path, default=Path("runs/learning_curve"))
    parser.add_argument("--quick", action="store_true", help="all arms, two steps, untuned")
    plan = parser.parse_args(arguments)
    plan.tasks, plan.arms = plan.tasks.split(","), plan.arms.split(",")
    if unknown := {*plan.tasks} - {*TASKS} | {*plan.arms} - {*ARMS}:
        parser.error(f"no such tasks or arms: {', '.join(sorted(unknown))}")
    if plan.quick:
        plan.seeds, plan.tokens, plan.eval_tasks, plan.test_tasks = 1, 1, 8, 16
        plan.work = Path(f"runs/learning_curve_quick-{os.getpid()}")
    plan.tokens = {name: plan.tokens or task.tokens for name, task in TASKS.items()}
    plan.results = plan.results or (plan.work if plan.quick else RESULTS)
    return plan


def main() -> None:
    """Run what is missing, then say everything."""
    plan = parse()
    clean_up_on_sigterm()
    plan.work.mkdir(parents=True, exist_ok=True)
    plan.results.mkdir(parents=True, exist_ok=True)
    experiment = Experiment(plan)
    if not plan.report:
        experiment.make_models()
        experiment.run()
    finals, others, missing = experiment.finals(), experiment.others(), experiment.missing()
    bases = experiment.bases()
    rows = rows_of(finals, bases, plan.tokens)
    if finals or others:
        pairs, contrasts = pairs_of(finals, others), contrasts_of(finals)
        lines = [line for found in (finals, others) for each in found.values() for line in each]
        played = sorted({line["commit"] for line in lines})
        tuned, missed = experiment.tuned(), len(missing)
        write_page(rows, bases, tuned, contrasts, pairs, played, missed, plan.tokens, plan.results)
    if finals:
        draw(finals, plan.results / "learning_curve.png")
    result = {
        "benchmark": "learning_curve",
        "commit": commit(),
        "machine": machine(),
        "tokens": plan.tokens,
        "rows": rows,
        "missing": missing,
        "goals": [goal("cells missing", len(missing), 0, not missing)],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
