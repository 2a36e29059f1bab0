"""The job spec that ``troupe.train`` makes of its arguments."""

from pathlib import Path
from typing import Any

import pytest

from troupe.episodes.build import load_parts
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.spec import JobSpec
from troupe.training.dataset import TaskRows
from troupe.training.job import TrainingOptions, instructions, job_spec, training_options
from troupe.training.results import empty_folder
from troupe.training.task import TASK_NAME

ROWS = TaskRows.of([{"prompt": str(number)} for number in range(20)])


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


def spec_of(agents: list[str], **options: Any) -> JobSpec:
    named = instructions(agents)
    params = {"socket": "/run/x.sock", "agents": named, "digest": ROWS.digest}
    params |= {"num_train": len(ROWS.train), "num_held_out": len(ROWS.held_out)}
    return job_spec(named, ROWS, {"name": TASK_NAME, "params": params}, TrainingOptions(**options))


def test_spec_when_a_team_then_acts_at_once_by_magrpo_with_a_policy_each(model: str) -> None:
    spec = spec_of(["a", "b"], model=model)
    assert (spec.algorithm.kind, spec.workflow.kind) == ("magrpo", "simultaneous")
    assert spec.task.params["agents"] == {"a": "", "b": ""}
    assert {agent: part.policy for agent, part in spec.agents.items()} == {"a": "a", "b": "b"}
    assert (spec.eval.num_tasks, spec.eval.split) == (2, "validation")
    load_parts(spec)


@pytest.mark.parametrize("algorithm", ["mareinforce", "marloo", "maremax"])
def test_spec_when_of_magrpos_family_then_a_team_acts_at_once(algorithm: str, model: str) -> None:
    team = spec_of(["a", "b"], model=model, algorithm=algorithm)
    assert team.workflow.kind == "simultaneous"
    assert team.algorithm.joint is not None
    assert spec_of(["a"], model=model, algorithm=algorithm).algorithm.joint is None


def test_spec_when_one_agent_then_grpo(model: str) -> None:
    spec = spec_of(["a"], model=model, lora_rank=None)
    assert (spec.algorithm.kind, spec.workflow.kind) == ("grpo", "turn_based")
    assert spec.policies["a"].train.kind == "full"
    load_parts(spec)


@pytest.mark.parametrize(
    "algorithm",
    ["at_grpo", "grpo", "rloo", "magrpo", {"kind": "maremax"}, {"kind": "marloo", "joint": None}],
)
def test_spec_when_an_algorithm_is_named_then_all_parts_load(algorithm: Any, model: str) -> None:
    spec = spec_of(["a", "b"], model=model, algorithm=algorithm)
    load_parts(spec)
    is_joint = spec.algorithm.kind in ("magrpo", "maremax")
    assert spec.workflow.kind == ("simultaneous" if is_joint else "turn_based")


def test_spec_when_policy_is_shared_then_there_is_one(model: str) -> None:
    spec = spec_of(["a", "b"], model=model, shared_policy=True)
    assert list(spec.policies) == ["shared"]


def test_spec_when_overridden_then_any_field_changes(model: str) -> None:
    changes = {"limits.env_timeout_s": 300, "trackers": [{"kind": "csv"}], "checkpoint.every": 5}
    spec = spec_of(["a"], model=model, overrides=changes)
    assert spec.limits.env_timeout_s == 300
    assert spec.trackers[0].kind == "csv"
    assert spec.checkpoint.every == 5


def test_spec_when_nothing_is_overridden_then_no_row_may_be_dropped(model: str) -> None:
    assert spec_of(["a"], model=model).limits.max_dropped_fraction == 0.0
    tolerant = spec_of(["a"], model=model, overrides={"limits.max_dropped_fraction": 0.1})
    assert tolerant.limits.max_dropped_fraction == 0.1


def test_spec_when_one_policy_is_overridden_then_the_others_stay(model: str) -> None:
    changes = {"policies.a.train.rank": 4, "policies.a.optimizer.learning_rate": 1e-3}
    spec = spec_of(["a", "b"], model=model, overrides=changes)
    trained = {name: policy.train.model_dump()["rank"] for name, policy in spec.policies.items()}
    assert trained == {"a": 4, "b": 16}
    assert spec.policies["b"].optimizer.learning_rate == 1e-4


def test_spec_when_overridden_then_the_caller_s_own_values_stay_as_they_are(model: str) -> None:
    algorithm = {"kind": "magrpo", "loss": {"clip_low": 0.1}}
    tracker = {"kind": "csv", "options": {"a": 1}}
    changes = {
        "algorithm.loss.entropy_coef": 0.5,
        "trackers": [tracker],
        "trackers.0.options.a": 2,
    }
    spec = spec_of(["a", "b"], model=model, algorithm=algorithm, overrides=changes)
    assert (spec.algorithm.loss.entropy_coef, spec.trackers[0].options) == (0.5, {"a": 2})
    assert algorithm == {"kind": "magrpo", "loss": {"clip_low": 0.1}}
    assert tracker["options"] == {"a": 1}


def test_options_when_a_number_is_a_text_then_is_that_number() -> None:
    options = training_options({"model": "m", "lora_rank": "8", "judge_timeout_s": "5"})
    assert (options.lora_rank, options.judge_timeout_s) == (8, 5.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "got 5"),
        ({"algorithm": None}, "algorithm"),
        ({"overrides": None}, "overrides"),
        ({"overrides": {5: 1}}, "overrides"),
        ({"lora_rank": [1]}, "lora_rank: Input should be a valid integer"),
        ({"judge_timeout_s": "soon"}, "judge_timeout_s"),
        ({"judge_timeout_s": 0}, "judge_timeout_s"),
        ({"judge_timeout_s": float("nan")}, "judge_timeout_s"),
        ({"judge_timeout_s": float("inf")}, "judge_timeout_s"),
        ({"max_turns": 0}, "max_turns"),
    ],
)
def test_options_when_of_a_wrong_type_or_out_of_bounds_then_are_refused_by_name(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        training_options({"model": "m", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "magrp"}, "did you mean 'magrpo'"),
        ({"overrides": {"limits.foo": 1}}, "/limits/foo"),
        ({"overrides": {"steps.x.y": 1}}, "overrides['steps.x.y']: a plain value has no field 'x'"),
        ({"overrides": {"workflow.order.9": "a"}}, "'9' is not an index of a list of 2"),
        ({"overrides": {"workflow.max_turns": 3}}, "give the argument max_turns"),
        ({"overrides": {"workflow": {"order": ["a", "b"]}}}, "make workflow.max_turns 4"),
        ({"overrides": {"task.params.max_turns": 3}}, "max_turns, judge_timeout_s"),
        ({"overrides": {"task.name": "sudoku"}}, "overrides change the task"),
        ({"steps": -1}, "/steps"),
        ({"model": "models/none"}, "no model in the folder 'models/none'"),
        ({"model": {"a": "x"}}, "names none for b"),
        ({"model": {"a": "x", "b": "y"}, "shared_policy": True}, "one model for all"),
    ],
)
def test_spec_when_an_argument_is_wrong_then_says_which(
    options: dict[str, Any], message: str, model: str
) -> None:
    with pytest.raises(TroupeError) as error:
        spec_of(["a", "b"], **{"model": model, **options})
    assert message in error.value.message


def test_spec_when_evaluations_are_asked_for_and_no_row_is_held_out_then_says_so(
    model: str,
) -> None:
    few, named = TaskRows.of([{"prompt": str(number)} for number in range(5)]), instructions(["a"])
    task = {"name": TASK_NAME, "params": {}}
    with pytest.raises(InvalidArgumentError, match="no row is held out"):
        job_spec(named, few, task, TrainingOptions(model=model, eval_every=5))


def test_instructions_when_two_agents_have_one_name_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="two agents are called 'w'"):
        instructions(["w", "v", "w"])


def test_empty_folder_when_of_home_or_a_file_then_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert empty_folder("~/weights") == tmp_path / "weights"
    (tmp_path / "weights").write_text("")
    with pytest.raises(InvalidArgumentError, match="is a file"):
        empty_folder("~/weights")


@pytest.mark.parametrize("agents", [{}, [], "writer", {"a": 3}])
def test_instructions_when_not_names_then_is_refused(agents: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="agent"):
        instructions(agents)
