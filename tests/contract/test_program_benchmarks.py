"""The figures of benchmarks/results/programs.md come from a run's files as the page says."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks import program_arms, program_questions
from benchmarks.budget_runs import BudgetRun
from benchmarks.program_answers import measure
from benchmarks.program_episodes import played
from benchmarks.program_examples import EXAMPLES, ChancePolicy, spec_of
from benchmarks.programs import slope
from troupe.candidates import GenerateRequest
from troupe.episodes.build import load_parts
from troupe.spec import parse_spec
from troupe.spec.job import SamplingSpec
from troupe.tasks.family import BoundedObservation, Message
from troupe.tasks.registry import load_family
from troupe.tasks.tool_calls import Tool
from troupe_tasks.plan_path import PlanPath, PlanPathParams

STEPS, NUM_GRIDS = 2, 6


def line(step: int, index: int, answer: str) -> dict[str, Any]:
    executed = {"is_chosen": True, "info": {"answer": answer}}
    return {
        "kind": "eval",
        "step": step,
        "task_id": f"plan_path/test/{index}",
        "groups": [{"candidates": [{"is_chosen": False, "info": {}}, executed]}],
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose base says nothing and whose trained team knows the way."""
    family = PlanPath(PlanPathParams(size=4))
    environment, taskset = family.environment(), family.taskset()
    lines: list[dict[str, Any]] = []
    for index in range(NUM_GRIDS):
        state = environment.reset(taskset.task("test", index))
        way = family.demonstrate(state, "planner", Random(0))
        lines += [line(0, index, "plan"), line(STEPS, index, way)]
    judge = {"name": "plan_path", "params": {"size": 4}, "agent": "planner"}
    spec = {"steps": STEPS, "task": {"params": {"judge": judge}}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    (tmp_path / "episodes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def test_answers_when_the_team_knows_the_way_then_length_explains_little(run: Path) -> None:
    found = measure(run, num_draws=20, num_changes=5)
    assert (found["n"], found["base"], found["trained"]) == (NUM_GRIDS, 0.0, 1.0)
    assert found["moves_mean"]["base"] == 0.0
    assert 0.0 < found["base_filled"] < 0.7
    assert found["trained_cut"] == 0.0
    assert (found["first_move"]["base"], found["first_move"]["trained"]) == (0.0, 1.0)
    assert 0.25 <= found["first_move"]["random"] < 0.75
    assert abs(found["base_filled"] - found["random"]) < 0.25
    assert measure(run, num_draws=20, num_changes=5) == found


async def test_policy_of_chance_when_tools_are_offered_then_calls_some() -> None:
    add = Tool("add", "Add two numbers.", {"type": "object", "properties": {}})
    prompt = BoundedObservation([Message("user", "What is 2 + 3?")], tools=[add])
    request = GenerateRequest("any", 0, prompt, 8, SamplingSpec(), seed=0)
    policy = ChancePolicy()
    generation = await policy.generate(request, timeout_s=1.0)
    calls = [c for c in generation.candidates if '"name": "add"' in c.text]
    assert 0 < len(calls) == policy.num_tool_calls


def test_slope_when_each_answer_costs_the_same_then_is_that_cost() -> None:
    assert slope({0: 0.1, 4: 0.14, 8: 0.18}) == pytest.approx(0.01)


async def test_episodes_when_a_program_repeats_itself_then_none_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    tally = await played(spec_of("toy", "run", "at_grpo"), 3)
    assert (tally.episodes, tally.dropped.total(), tally.retried.total()) == (3, 0, 0)
    assert tally.groups >= 3
    assert tally.runs >= 3
    assert tally.own_cpu_s > 0


ARMS = [
    (question, arm) for question, told in program_questions.QUESTIONS.items() for arm in told.arms
]


MAKERS = {"designed": "designed/sums.py", "router": "programs/routed_base.py"}
"""What makes the problems of an example."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the problems of those examples, and the programs beside them."""
    folder = tmp_path_factory.mktemp("made")
    for script in MAKERS.values():
        made_by = [sys.executable, str(EXAMPLES.parent / script)]
        subprocess.run(made_by, cwd=folder, check=True, timeout=60)
    (folder / "toy").symlink_to(EXAMPLES / "toy")
    return folder


@pytest.mark.parametrize(("question", "arm"), ARMS)
def test_arm_when_listed_then_its_job_can_be_played(
    question: str, arm: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made if question in MAKERS else EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = parse_spec(program_questions.spec_of(question, arm, 1, "models/any", rate=3e-3))
    assert load_parts(spec).family.agents
    assert {policy.model for policy in spec.policies.values()} == {"models/any"}
    trained = [policy for policy in spec.policies.values() if not policy.frozen]
    assert {policy.optimizer.learning_rate for policy in trained} == {3e-3}


def write_run(folder: Path, metrics: list[dict[str, Any]], episodes: list[dict[str, Any]]) -> None:
    """A run's files, where `BudgetRun` of ``folder`` finds them."""
    run = folder / "runs" / "x-1"
    run.mkdir(parents=True)
    for name, lines in (("metrics", metrics), ("episodes", episodes)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (run / f"{name}.jsonl").write_text(text + '{"torn')


def test_run_when_it_has_passed_the_budget_then_success_is_between_its_evaluations(
    tmp_path: Path,
) -> None:
    solved = {0: (), 1: ("a",), 2: ("a", "b")}
    metrics = [
        {"kind": "eval", "step": 0, "success": 0.0},
        {"kind": "train", "step": 0, "num_tokens": 100},
        {"kind": "eval", "step": 1, "success": 0.25},
        {"kind": "train", "step": 1, "num_tokens": 300},
        {"kind": "eval", "step": 2, "success": 0.5},
    ]
    episodes = [
        {"kind": kind, "step": step, "task_id": task, "is_success": task in solved[step]}
        for kind in ("train", "eval")
        for step in solved
        for task in "badc"
    ]
    lost = next(x for x in episodes if (x["kind"], x["step"], x["task_id"]) == ("eval", 1, "d"))
    lost |= {"task_id": "test/3", "dropped_reason": "no replica"}
    write_run(tmp_path, metrics, episodes)
    run = BudgetRun(tmp_path, {"name": "x"})
    assert run.curve() == [(0, 0, 0.0), (1, 100, 0.25), (2, 400, 0.5)]
    assert run.solved(250) == {"a": 1.0, "b": 0.5, "c": 0.0}
    assert run.solved(400) == {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0}
    assert run.is_done(400)
    assert not run.is_done(500)
    assert run.solved(500) is None


def told(folder: Path, rates: str = "1e-3,2e-3") -> argparse.Namespace:
    return argparse.Namespace(
        question="designed",
        tokens=1000,
        seeds="1,2",
        rates=rates,
        workers=1,
        minutes=1.0,
        port_base=18_500,
        model=None,
        judge=None,
        folder=folder,
    )


def write_arm(folder: Path, name: str, num_solved: int, num_tasks: int = 4) -> None:
    """A finished run of an arm that solves so many of its tasks."""
    metrics = [
        {"kind": "eval", "step": 0, "success": 0.0},
        {"kind": "train", "step": 0, "num_tokens": 1000},
        {"kind": "eval", "step": 1, "success": num_solved / num_tasks},
    ]
    chosen = {"candidates": [{"is_chosen": True, "info": {}}]}
    episodes = [
        {
            "kind": "eval",
            "step": step,
            "task_id": f"task/{index}",
            "is_success": step == 1 and index < num_solved,
            "groups": [chosen],
        }
        for step in (0, 1)
        for index in range(num_tasks)
    ]
    write_run(folder / name, metrics, episodes)


def test_comparison_when_rates_differ_on_validation_then_the_better_one_meets_the_test(
    tmp_path: Path,
) -> None:
    for arm, better in (("both-learn", "0.002"), ("one-answer", "0.001")):
        for rate in ("0.001", "0.002"):
            solved = 3 if rate == better else 2
            write_arm(tmp_path, f"designed-{arm}-{rate}-validation-0-none", solved)
    for seed, solved in ((1, 4), (2, 3)):
        write_arm(tmp_path, f"designed-both-learn-0.002-test-{seed}-none", solved)
        write_arm(tmp_path, f"designed-both-learn-0.001-test-{seed}-none", 0)
    write_arm(tmp_path, "designed-one-answer-0.001-test-2-none", 1)
    rows = program_arms.Comparison(told(tmp_path)).rows()
    both, one = rows["both learn"], rows["one answer"]
    assert (both["rate"], one["rate"]) == (2e-3, 1e-3)
    assert both["validation"] == {"0.001": 0.5, "0.002": 0.75}
    assert both["success"][0] == 87.5
    assert {seed: (x["base"], x["success"]) for seed, x in both["seeds"].items()} == {
        1: (0.0, 1.0),
        2: (0.0, 0.75),
    }
    assert one["success"][0] == 25.0
    assert one["less"][0] == -50.0  # of seed 2 alone, which both have
    assert "less" not in both
    assert rows["program and answer"]["rate"] is None
    for name, row in rows.items():
        assert program_arms.line_of(name, row).count("|") == 11


def test_comparison_when_one_rate_is_told_then_nothing_is_tuned(tmp_path: Path) -> None:
    write_arm(tmp_path, "designed-both-learn-0.005-test-1-none", 2)
    row = program_arms.Comparison(told(tmp_path, "5e-3")).rows()["both learn"]
    assert (row["rate"], row["validation"]) == (5e-3, {})
    assert row["success"][0] == 50.0


def test_plans_when_some_are_unreadable_then_they_count_as_no_calls(tmp_path: Path) -> None:
    def played(step: int, *infos: dict[str, Any]) -> dict[str, Any]:
        groups = [{"candidates": [{"is_chosen": True, "info": info}]} for info in infos]
        return {"kind": "eval", "step": step, "groups": groups}

    review = {"calls": 3, "operators": {"answer": 0.3333, "review": 0.3333, "revise": 0.3333}}
    alone = {"calls": 1, "operators": {"answer": 1.0}}
    lines = [
        played(0, review),
        played(4, review, review, review, review),
        played(4, {"failure": "plan", "why": "0 lines", "calls": 0}),
        played(4, {}, alone),
        played(4, {}, alone),
    ]
    evals = [{"kind": "eval", "step": step, "success": 0.1} for step in (0, 4)]
    write_run(tmp_path, evals, lines)
    found = program_arms.plans_of(BudgetRun(tmp_path, {"name": "x"}))
    assert (found["readable"], found["calls"]) == (0.75, 1.25)
    assert found["operators"]["answer"] == pytest.approx(0.778, abs=1e-3)
    assert found["operators"]["review"] == pytest.approx(0.111, abs=1e-3)


def test_shortest_walk_when_a_move_is_wasted_then_nothing_is_paid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    family = load_family("shortest:ShortestWalk", {"size": 4})
    environment, taskset = family.environment(), family.taskset()
    for index in range(NUM_GRIDS):
        state = environment.reset(taskset.task("train", index))
        way = family.demonstrate(state, "planner", Random(0))
        assert environment.step(state, "planner", way).team_reward == 1.0
        short, long = way.rsplit(" ", 1)[0], f"{way} U"
        for answer in (short, long, f"plan U D {way.removeprefix('plan ')}", ""):
            transition = environment.step(state, "planner", answer)
            assert (transition.team_reward, transition.success) == (0.0, False)
