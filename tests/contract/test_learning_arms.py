"""Every arm of `benchmarks.learning_curve` is a job that the platform takes, and tuned alike."""

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import learning_curve
from benchmarks.budget_runs import RunPool
from benchmarks.intervals import holm, interval, sign_flip
from benchmarks.learning_arms import ARMS, CONTRASTS, TASKS, Setting, settings_of, spec_of
from benchmarks.learning_cells import Budget, Cell, base_digest, digest_of
from benchmarks.learning_report import contrasts_of, rows_of
from troupe.episodes.build import load_parts
from troupe.evaluation.estimators import expanded_students_t
from troupe.spec.job import JobSpec


@pytest.mark.parametrize("name", ARMS)
def test_arm_is_a_job_that_can_be_played(name: str, tmp_path: Path) -> None:
    for task in TASKS.values():
        if ARMS[name].plays(task):
            setting = next(settings_of(ARMS[name]))
            document = spec_of(name, ARMS[name], task, tmp_path, setting, 0, steps=3, eval_tasks=8)
            spec = JobSpec.model_validate(document)
            assert load_parts(spec).family.name == task.family


def test_arms_are_tuned_with_equal_effort_and_have_equal_rewards(tmp_path: Path) -> None:
    assert {len(list(settings_of(arm))) for arm in ARMS.values()} == {8}
    for task in TASKS.values():
        documents = {
            name: spec_of(
                name, arm, task, tmp_path, next(settings_of(arm)), 0, steps=3, eval_tasks=8
            )
            for name, arm in ARMS.items()
        }
        weighted = {name for name, found in documents.items() if "reward" in found}
        assert weighted == {"turn_grpo_team", "grpo_team", "ippo", "ippo_L0"}
        weights = documents["grpo_team"]["reward"]["weights"]
        assert weights.keys() == set(task.seats)
        assert not any(value for terms in weights.values() for value in terms.values())
        assert documents["ippo"]["reward"] == documents["grpo_team"]["reward"]
        assert len({str(document["task"]) for document in documents.values()}) == 1


def test_cells_when_their_base_is_kept_beside_them_then_it_has_the_digest_they_name(
    tmp_path: Path,
) -> None:
    results = learning_curve.RESULTS / "learning_second_base"
    plan = learning_curve.parse(["--results", str(results), "--work", str(tmp_path)])
    experiment = learning_curve.Experiment(plan)
    named = {
        (name.partition(":")[0], line["base"]) for name, line in experiment.cells.lines.items()
    }
    kept = {(path.name, base_digest(path)) for path in (results / "bases").iterdir()}
    assert named == kept
    for task, _ in kept:
        cell = Cell(task, "at_grpo", Setting(5e-4, 8), 0)
        assert str(cell) in experiment.tuned()  # found by what is kept: ``work`` is empty


def test_interval_when_tasks_of_a_map_fall_together_then_maps_are_drawn() -> None:
    maps = [0] * 50 + [1] * 50
    of_maps = np.array([[1] * 50 + [0] * 50] * 4)
    assert interval(of_maps, maps=maps) == [50.0, 0.0, 100.0]  # two maps say nothing
    none = np.zeros_like(of_maps)
    assert interval(of_maps, none, maps=maps)[1] < 0.0  # a difference has no such ends
    mean, low, high = interval(of_maps, maps=range(100))
    assert mean == 50.0
    # Seeds that agree add nothing: deviation 5 of the maps, Student's 1.984 for 100 of them.
    assert high - mean == pytest.approx(mean - low) == pytest.approx(10.0, abs=0.5)
    assert interval(of_maps, of_maps, maps=maps) == [0.0, 0.0, 0.0]


def test_interval_when_seeds_differ_and_maps_do_not_then_is_students_over_seeds() -> None:
    """Success 50 % and 0 of two seeds, the same on each map: 25 with a deviation of 25."""
    values = np.array([[1, 0] * 20, [0, 0] * 20])
    mean, low, high = interval(values, np.zeros_like(values), maps=[i // 2 for i in range(40)])
    assert mean == 25.0
    width = 25 * expanded_students_t(1)
    assert high - mean == pytest.approx(mean - low) == pytest.approx(width, abs=0.1)


@pytest.mark.parametrize(
    ("degrees", "expected"), [(2, 4.303), (3, 3.182), (7, 2.365), (11, 2.201), (1000, 1.962)]
)
def test_students_t_is_the_tables(degrees: int, expected: float) -> None:
    assert expanded_students_t(degrees) == pytest.approx(expected, rel=0.01)


def test_holm_when_several_are_tested_then_each_is_corrected_for_those_left() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]


def test_contrasts_when_arms_are_there_then_their_common_seeds_are_paired() -> None:
    def lines(seeds: range, digit: str) -> list[dict[str, Any]]:
        return [{"seed": seed, "test": {"1": digit * 40, "0": digit * 40}} for seed in seeds]

    finals = {
        ("guided_walk", "at_grpo"): lines(range(8), "1"),
        ("guided_walk", "grpo_team"): lines(range(8), "0"),
        ("guided_walk", "best_of_k"): lines(range(4, 12), "1"),
    }
    same, better = contrasts_of(finals)
    assert same.startswith("| guided_walk | at_grpo less best_of_k |")
    assert same.endswith("| 4 | 0.0 (0.0 to 0.0) | 1.0000 | 1.000 |")
    # Of 256 signs two are as far; one of two tests is corrected for both.
    assert better.endswith("| 8 | 100.0 (100.0 to 100.0) | 0.0078 | 0.016 |")
    assert all(name in ARMS for names in CONTRASTS for name in names)


def test_rows_when_steps_differ_in_tasks_then_steps_are_compared_among_equals() -> None:
    def line(tasks: int, steps: int) -> dict[str, Any]:
        curve = [[0, 0, 0.0, 0.0], [steps, 1000, 10.0, 1.0]]
        cell = f"guided_walk:an_arm:0.001:{tasks}:final-200"
        test = {"1": "1" * 40, "0": "1" * 40}
        return {"cell": cell, "seed": 200, "curve": curve, "test": test, "commit": "c"}

    finals = {
        ("guided_walk", "at_grpo"): [line(8, 40)],
        ("guided_walk", "grpo_team"): [line(8, 50)],
        ("guided_walk", "grpo"): [line(32, 10)],
    }
    rows = rows_of(finals, {}, dict.fromkeys(TASKS, 500))
    assert [row["at_updates"] for row in rows] == [[40.0, 100.0], [40.0, 80.0], [10.0, 100.0]]
    assert [row["at_tokens"] for row in rows] == [[500.0, 50.0]] * 3


def test_pool_when_a_run_stops_it_then_those_under_way_are_told_and_no_other_begins() -> None:
    pool, played = RunPool(2, 100, minutes=1.0), list[tuple[str, int]]()
    is_under_way = threading.Event()

    def play(run: str, port_base: int) -> None:
        played.append((run, port_base))
        if run == "stops":
            assert is_under_way.wait(30.0)
            raise SystemExit
        if run == "waits":
            is_under_way.set()
            assert pool.stopped.wait(30.0)

    phases = [lambda: ["first", "second", "third"], lambda: ["stops", "waits"], lambda: ["never"]]
    with pytest.raises(SystemExit):
        pool.play(phases, play)
    assert {run for run, _ in played} == {"first", "second", "third", "stops", "waits"}
    assert {port_base for _, port_base in played} == {100, 200}
    assert pool.left_s() == 0.0


def test_sign_flip_when_every_seed_agrees_then_two_of_all_signs_are_as_far() -> None:
    assert sign_flip([0.1] * 8) == 2 / 256
    assert sign_flip([0.1, -0.1]) == 1.0
    # |3 - 1| or more: all signs but +2 -1 -1 and its opposite.
    assert sign_flip([2.0, 1.0, -1.0]) == 6 / 8


def test_plan_when_a_setting_is_named_then_no_other_is_played_to_find_its_steps(
    tmp_path: Path,
) -> None:
    flags = ["--tasks", "plan_path", "--arms", "at_grpo,best_of_k", "--work", str(tmp_path)]
    flags += ["--results", str(tmp_path)]
    chosen = [("plan_path", "at_grpo"), ("plan_path", "best_of_k")]

    def first(*more: str) -> list[Cell]:
        return learning_curve.Experiment(learning_curve.parse([*flags, *more])).first(chosen)

    assert len(first()) == 16
    assert [str(cell) for cell in first("--setting", "5e-4:8")] == [
        "plan_path:at_grpo:0.0005:8:tune",
        "plan_path:best_of_k:0.0005:8:tune",
    ]
    assert [str(cell) for cell in first("--setting", "1e-4:8")] == [
        "plan_path:at_grpo:0.0001:8:tune",
        "plan_path:best_of_k:0.0001:8:tune",
    ]


def test_setting_when_tuning_does_not_know_it_then_the_tables_have_it(tmp_path: Path) -> None:
    plan = learning_curve.parse(["--results", str(tmp_path), "--work", str(tmp_path / "work")])
    budget = Budget(plan.tokens["plan_path"], plan.eval_tasks, plan.test_tasks, plan.run_timeout_s)
    task, model = TASKS["plan_path"], tmp_path / "work" / "plan_path" / "base"
    setting = Setting(1e-4, 8)
    with (tmp_path / "learning_cells.jsonl").open("w") as file:
        for seed, steps, needed in ((0, 0, 7), (200, 7, 7), (201, 7, 7), (1, 0, 8), (2, 0, 9)):
            cell = Cell("plan_path", "at_grpo", setting, seed, steps)
            name = cell.named(digest_of(cell, task, model, "base", budget))
            line = {"cell": name, "base": "base", "curve": [[0, 0, 0, 0.5]]}
            file.write(json.dumps(line | {"steps_at_budget": needed}) + "\n")
    experiment = learning_curve.Experiment(plan)
    assert list(experiment.tuned()) == ["plan_path:at_grpo:0.0001:8:tune"]
    # Played for the first run's steps, whatever later ones needed.
    found = experiment.others()
    assert [line["seed"] for line in found["plan_path", "at_grpo", setting]] == [200, 201]
    assert found.keys() == {("plan_path", "at_grpo", setting)}
    assert experiment.finals() == {}


def test_twins_when_few_maps_are_drawn_then_tasks_of_one_share_its_number() -> None:
    found = TASKS["guided_walk"].twins(200)
    assert len(found) == 200
    assert set(found) == set(range(max(found) + 1))
    assert 10 < len(set(found)) < 40
    assert len(set(TASKS["plan_path"].twins(50))) == 50


def test_setting_when_one_seed_favours_it_then_the_mean_of_three_decides(tmp_path: Path) -> None:
    plan = learning_curve.parse(["--results", str(tmp_path), "--work", str(tmp_path / "work")])
    budget = Budget(
        plan.tokens["guided_walk"], plan.eval_tasks, plan.test_tasks, plan.run_timeout_s
    )
    task, model = TASKS["guided_walk"], tmp_path / "work" / "guided_walk" / "base"
    settings = list(settings_of(ARMS["at_grpo"]))
    lucky, steady, third = settings[:3]

    def keep(setting: Setting, seed: int, success: float, steps: int = 0) -> None:
        cell = Cell("guided_walk", "at_grpo", setting, seed, steps)
        digest = digest_of(cell, task, model, "base", budget)
        line = {"cell": cell.named(digest), "base": "base", "curve": [[0, 0, 0, success]]}
        with (tmp_path / "learning_cells.jsonl").open("a") as file:
            file.write(json.dumps(line | {"steps_at_budget": 7}) + "\n")

    def chosen() -> list[str]:
        finals = learning_curve.Experiment(plan).finals()
        lines = finals.get(("guided_walk", "at_grpo"), [])
        return [line["cell"].split(":final")[0] for line in lines]

    first = {lucky: 0.9, steady: 0.8, third: 0.7}
    for setting in settings:
        keep(setting, 0, first.get(setting, 0.1))
        keep(setting, learning_curve.FIRST_SEED, 0.5, steps=7)
    for setting, success in ((lucky, 0.3), (steady, 0.8), (third, 0.6)):
        keep(setting, 1, success)
    keep(lucky, 2, 0.3)
    keep(steady, 2, 0.8)
    assert chosen() == []  # not before all three settings have all seeds
    keep(third, 2, 0.6)
    assert chosen() == [f"guided_walk:at_grpo:{steady.rate:g}:{steady.tasks_per_step}"]
