"""The job spec that ``troupe.train`` makes of its arguments."""

from pathlib import Path
from typing import Any

import pytest

from troupe.episodes.build import load_parts
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.spec import JobSpec
from troupe.training.dataset import TaskRows
from troupe.training.job import TrainingOptions, instructions, job_spec
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


def test_spec_when_one_agent_then_grpo(model: str) -> None:
    spec = spec_of(["a"], model=model, lora_rank=None)
    assert (spec.algorithm.kind, spec.workflow.kind) == ("grpo", "turn_based")
    assert spec.policies["a"].train.kind == "full"
    load_parts(spec)


@pytest.mark.parametrize("algorithm", ["at_grpo", "grpo", "rloo", "magrpo", {"kind": "maremax"}])
def test_spec_when_an_algorithm_is_named_then_all_parts_load(algorithm: Any, model: str) -> None:
    spec = spec_of(["a", "b"], model=model, algorithm=algorithm)
    load_parts(spec)
    is_joint = spec.algorithm.kind == "magrpo"  # the only one here that needs joint actions
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "magrp"}, "did you mean 'magrpo'"),
        ({"overrides": {"limits.foo": 1}}, "/limits/foo"),
        ({"overrides": {"steps.x.y": 1}}, "overrides['steps.x.y']: a plain value has no field 'x'"),
        ({"overrides": {"workflow.order.9": "a"}}, "'9' is not an index of a list of 2"),
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


@pytest.mark.parametrize("agents", [{}, [], "writer", {"a": 3}])
def test_instructions_when_not_names_then_is_refused(agents: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="agent"):
        instructions(agents)
