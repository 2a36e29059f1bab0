"""Figures, page and plot of `benchmarks.learning_curve`, from its finished cells alone."""

import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks.intervals import holm, interval, sign_flip
from benchmarks.learning_arms import ARMS, CONTRASTS, TASKS, Setting
from benchmarks.learning_cells import at

MIN_SEEDS = 4
MAIN = {"in turn": "at_grpo", "alone": "at_grpo_L0"}
"""AT-GRPO by game."""
_TOKENS, _CPU = 1, 2


def outcomes(lines: Sequence[Mapping[str, Any]], temperature: str) -> np.ndarray:
    """(seeds, tasks), 1 where a trained team solved the task."""
    return np.array([[int(digit) for digit in line["test"][temperature]] for line in lines])


def rows_of(
    finals: Mapping[tuple[str, str], list[dict[str, Any]]],
    bases: Mapping[tuple[str, str], Mapping[str, Any]],
    tokens: Mapping[str, int],
) -> list[dict[str, Any]]:
    """One row a task and arm: success of all its seeds, and its paired difference to AT-GRPO.

    Paired with the AT-GRPO of the same game: alone with one agent alone, none for acts at once.
    ``tokens``: task -> its budget, here and below.
    """
    rows: list[dict[str, Any]] = []
    for (task, arm), lines in finals.items():
        ends = [line["curve"][-1] for line in lines]
        row: dict[str, Any] = {"task": task, "arm": arm, "game": ARMS[arm].game}
        row["seeds"], row["setting"] = len(lines), _setting_of(lines[0])
        maps = TASKS[task].twins(len(lines[0]["test"]["1"]))
        base = bases.get((task, row["game"]), {"test": {}})
        row["updates"] = round(median(end[0] for end in ends))
        tokens_of = [end[_TOKENS] for end in ends]
        row["tokens"] = [fmean(tokens_of), min(tokens_of), max(tokens_of)]
        row["cpu_s"] = round(median(end[_CPU] for end in ends))
        row["commits"] = sorted({line["commit"] for line in lines})
        main = MAIN.get(ARMS[arm].game, "")
        shared, paired = _shared(lines, finals.get((task, main), []))
        for temperature in lines[0]["test"]:
            row[f"success_{temperature}"] = interval(outcomes(lines, temperature), maps=maps)
            if temperature in base["test"]:
                row[f"base_{temperature}"] = _of_base(task, base, temperature)
            if arm != main and shared:
                other = outcomes(paired, temperature)
                own = outcomes(shared, temperature)
                row[f"less_{temperature}"] = interval(own, other, maps=maps)
                row[f"p_{temperature}"] = sign_flip(own.mean(axis=1) - other.mean(axis=1))
        rows.append(row)
    _add_equal(rows, finals, tokens)
    return rows


def contrasts_of(finals: Mapping[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """A line of the page for each question of ``CONTRASTS`` whose two arms are there, by task."""
    found: list[str] = []
    for task in {task: None for task, _ in finals}:
        cells: list[list[str]] = []
        ps: list[float] = []
        for (arm, rival), question in CONTRASTS.items():
            shared = _shared(finals.get((task, arm), []), finals.get((task, rival), []))
            if shared[0]:
                own, other = (outcomes(lines, "1") for lines in shared)
                maps = TASKS[task].twins(own.shape[1])
                ps.append(sign_flip(own.mean(axis=1) - other.mean(axis=1)))
                less = _with_interval(interval(own, other, maps=maps))
                cells.append([task, f"{arm} less {rival}", question, str(len(own)), less])
        for row, p, corrected in zip(cells, ps, holm(ps), strict=True):
            found.append(f"| {' | '.join([*row, f'{p:.4f}', f'{corrected:.3f}'])} |")
    return found


def _shared(
    lines: Sequence[dict[str, Any]], rivals: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of both arms the lines of the seeds that both have, in one order."""
    by_seed = {line["seed"]: line for line in rivals}
    own = [line for line in lines if line["seed"] in by_seed]
    return own, [by_seed[line["seed"]] for line in own]


def pairs_of(
    finals: Mapping[tuple[str, str], list[dict[str, Any]]],
    others: Mapping[tuple[str, str, Setting], list[dict[str, Any]]],
) -> list[str]:
    """A line of the page for each two arms, of which one may have a setting that was not chosen.

    First each arm's own success, as its difference to nothing, with however many seeds.
    """
    found: list[str] = []
    played = [(task, arm, lines) for (task, arm), lines in finals.items()]
    played += [(task, arm, lines) for (task, arm, _), lines in others.items()]
    for task, arm, lines in played:
        found.append(_pair_line(task, _label(arm, lines), "nothing", lines, None))
    for (task, arm, lines), (other_task, other, rivals) in combinations(played, 2):
        if task == other_task:
            shared, paired = _shared(lines, rivals)
            if len(shared) >= MIN_SEEDS:
                names = _label(arm, lines), _label(other, rivals)
                found.append(_pair_line(task, *names, shared, paired))
    return found


def _label(arm: str, lines: Sequence[Mapping[str, Any]]) -> str:
    rate, tasks = _setting_of(lines[0])
    return f"{arm}, {rate}, {tasks}"


def _pair_line(
    task: str,
    name: str,
    other: str,
    lines: Sequence[Mapping[str, Any]],
    rivals: Sequence[Mapping[str, Any]] | None,
) -> str:
    maps = TASKS[task].twins(len(lines[0]["test"]["1"]))
    cells = [f"| {task}", name, other, str(len(lines))]
    for temperature in ("1", "0"):
        own = outcomes(lines, temperature)
        if rivals is None:
            cpu = median(line["curve"][-1][_CPU] for line in lines)
            cells += [_with_interval(interval(own, maps=maps)), f"{cpu:.0f} CPU s"]
        else:
            less = outcomes(rivals, temperature)
            p = sign_flip(own.mean(axis=1) - less.mean(axis=1))
            cells += [_with_interval(interval(own, less, maps=maps)), f"{p:.3f}"]
    return " | ".join([*cells[:-1], f"{cells[-1]} |"])


def _add_equal(
    rows: Sequence[dict[str, Any]],
    finals: Mapping[tuple[str, str], list[dict[str, Any]]],
    tokens: Mapping[str, int],
) -> None:
    """Validation success at equal tokens, and at updates and CPU time that every arm reached.

    Updates of arms whose steps have as many tasks.
    """
    for row in rows:
        played = [
            (arm, line)
            for (task, arm), lines in finals.items()
            for line in lines
            if task == row["task"]
        ]
        every = [line["curve"] for _, line in played]
        own = [line["curve"] for arm, line in played if arm == row["arm"]]
        alike = [line["curve"] for _, line in played if _setting_of(line)[1] == row["setting"][1]]
        amounts = {
            "at_tokens": (_TOKENS, float(tokens[row["task"]])),
            "at_updates": (0, _reached(alike, 0)),
            "at_cpu_s": (_CPU, _reached(every, _CPU)),
        }
        for key, (column, amount) in amounts.items():
            success = fmean(at(curve, column, amount) for curve in own)
            row[key] = [round(amount, 1), round(100 * success, 1)]


def _setting_of(line: Mapping[str, Any]) -> list[str]:
    """Learning rate and tasks a step, as the cell names them."""
    return line["cell"].split(":")[2:4]


def _reached(curves: Sequence[Sequence[Sequence[float]]], column: int) -> float:
    """What every curve reached, and at least what every one began with."""
    start = max(curve[0][column] for curve in curves)
    return max(start, min(curve[-1][column] for curve in curves))


def _tuning_lines(tuned: Mapping[str, Mapping[str, Any]], tokens: Mapping[str, int]) -> list[str]:
    """A line a task and arm: validation success at the budget, each setting with all its seeds."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for cell, line in tuned.items():
        task, arm, rate, tasks, _ = cell.split(":")
        of_setting = found.setdefault((task, arm), {}).setdefault(f"{rate}, {tasks}", [])
        of_setting.append(f"{100 * at(line['curve'], _TOKENS, tokens[task]):.1f}")
    return [
        f"| {task} | {arm} | "
        + "; ".join(f"{name}: {' / '.join(seeds)}" for name, seeds in settings.items())
        + " |"
        for (task, arm), settings in found.items()
    ]


def write_page(
    rows: Sequence[Mapping[str, Any]],
    bases: Mapping[tuple[str, str], Mapping[str, Any]],
    tuned: Mapping[str, Mapping[str, Any]],
    contrasts: Sequence[str],
    pairs: Sequence[str],
    played: Sequence[str],
    missing: int,
    tokens: Mapping[str, int],
    folder: Path,
) -> None:
    """``learning_tables.md``: every figure of the comparison, made anew by each call.

    ``played``: the commits of the final runs.
    """
    made = sorted({f"{line['commit']} on {line['machine']}" for line in tuned.values()})
    says = os.path.relpath(Path(__file__).parent / "results/learning_curve.md", folder)
    budgets = ", ".join(f"{number:,} on {task}" for task, number in tokens.items())
    text = [
        "# Tables of `python -m benchmarks.learning_curve`",
        "",
        f"Made by that command; do not edit. Sampled tokens a run, about: {budgets}; {missing} "
        f"cells are missing. Tuned at {', '.join(made) or 'nothing'}; final runs at "
        f"{', '.join(played) or 'none'}. What it says: [learning_curve.md]({says}).",
        "",
        *_success_section(rows, bases),
        *_section(
            "Contrasts",
            "Named before the final runs; temperature 1. Corrected p: Holm, over the lines of a "
            "task.",
            "| task | what | it asks | seeds | difference | p | corrected |",
            contrasts,
        ),
        *_section(
            "Tuning",
            "Validation success in per cent at the budget, by seed. An arm's final runs have the "
            "best of its three best settings, by the mean of three seeds.",
            "| task | arm | rate, tasks a step: success |",
            _tuning_lines(tuned, tokens),
        ),
        *_section(
            "Pairs",
            "Arms of one task, of other games too (one agent, `_L0`, and `magrpo`, whose agents "
            "act at once), also at settings that `--setting` asked for (tuning decides by itself "
            "which row of the first table an arm has), with at least four seeds in common. CPU "
            "s: medians of the seeds.",
            "| task | arm, rate, tasks a step | less | seeds | temperature 1 | p | greedy | p |",
            pairs,
        ),
    ]
    (folder / "learning_tables.md").write_text("\n".join(text) + "\n", "utf-8")


def _section(title: str, about: str, head: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", about, "", head, _rule(head), *lines]


def _rule(head: str) -> str:
    return "|" + "---|" * (head.count("|") - 1)


def _success_section(
    rows: Sequence[Mapping[str, Any]], bases: Mapping[tuple[str, str], Mapping[str, Any]]
) -> list[str]:
    """What every arm came to, and what its base had."""
    head = (
        "| task | arm | game | rate, tasks a step | seeds | steps | tokens | CPU s "
        "| temperature 1 | less AT-GRPO | p | greedy | less AT-GRPO | p | at tokens | at steps "
        "| at CPU s |"
    )
    return [
        "Success of test tasks in per cent with 95 % intervals (Student's t, over seeds and over "
        "maps up to symmetry; all seeds share one base). Differences are paired by seed and task, "
        "with the AT-GRPO of the same game; p: exact sign-flip test over seeds. Success of "
        "validation tasks, which the setting was chosen on, at equal tokens (a run that ended "
        "before them: at its end), at the steps that every arm with as many tasks a step reached, "
        "and at the CPU seconds (start and evaluations included) that every arm of the task "
        "reached.",
        "",
        head,
        _rule(head),
        *(_success_line(row) for row in rows),
        "",
        "Base:",
        *(
            f"- {task}, {game}: {_with_interval(_of_base(task, line, '1'))} at temperature 1, "
            f"{_with_interval(_of_base(task, line, '0'))} greedy"
            for (task, game), line in bases.items()
        ),
    ]


def _of_base(task: str, line: Mapping[str, Any], temperature: str) -> list[float]:
    maps = TASKS[task].twins(len(line["test"][temperature]))
    return interval(outcomes([line], temperature), maps=maps)


def _success_line(row: Mapping[str, Any]) -> str:
    cells = [row["task"], row["arm"], row["game"], ", ".join(row["setting"])]
    cells += [row["seeds"], row["updates"], "{:,.0f} ({:,.0f} to {:,.0f})".format(*row["tokens"])]
    cells.append(row["cpu_s"])
    for temperature in ("1", "0"):
        cells += [_with_interval(row.get(f"{key}_{temperature}")) for key in ("success", "less")]
        cells.append(row.get(f"p_{temperature}", "-"))
    cells.append(row["at_tokens"][1])
    cells += ["{:.0f}: {}".format(*row[key]) for key in ("at_updates", "at_cpu_s")]
    return f"| {' | '.join(map(str, cells))} |"


def _with_interval(values: Sequence[float] | None) -> str:
    return "-" if values is None else f"{values[0]:.1f} ({values[1]:.1f} to {values[2]:.1f})"


def draw(finals: Mapping[tuple[str, str], list[dict[str, Any]]], path: Path) -> None:
    """Validation success over updates, tokens and CPU time: the mean of an arm's seeds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    tasks = list(dict.fromkeys(task for task, _ in finals))
    names = ("updates", "sampled tokens", "CPU seconds")
    figure, axes = plt.subplots(len(tasks), 3, figsize=(18, 4.5 * len(tasks)), squeeze=False)
    for row, task in zip(axes, tasks, strict=True):
        for column, (axis, name) in enumerate(zip(row, names, strict=True)):
            for (of_task, arm), lines in finals.items():
                if of_task == task:
                    curves = [line["curve"] for line in lines]
                    end = min(curve[-1][column] for curve in curves)
                    start = max(curve[0][column] for curve in curves)
                    xs = np.linspace(start, max(start, end), 30)
                    ys = [fmean(at(curve, column, float(x)) for curve in curves) for x in xs]
                    axis.plot(xs, ys, label=arm, ls="--" if arm.endswith("_L0") else "-")
            axis.set(title=task, xlabel=name, ylabel="validation success", ylim=(0, 1))
        row[-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)
