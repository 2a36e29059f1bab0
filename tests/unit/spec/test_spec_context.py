"""A completion that no context holds is refused before anything starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from troupe.spec import JobSpec, parse_spec
from troupe.spec.context import context_issues, context_length


def spec(folder: Path, **more: Any) -> JobSpec:
    document: dict[str, Any] = {
        "name": "t",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": str(folder)}},
    }
    return parse_spec({**document, **more})


def model(folder: Path, **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("limit", "fits"), [(1, True), (511, True), (512, False), (600, False)])
def test_limit_when_it_leaves_no_room_for_a_prompt_then_is_refused(
    tmp_path: Path, limit: int, fits: bool
) -> None:
    folder = model(tmp_path, max_position_embeddings=512)
    issues = context_issues(spec(folder, sampling={"max_new_tokens": limit}))
    assert (issues == []) is fits
    for issue in issues:
        assert issue.pointer == "/sampling/max_new_tokens"
        assert f"may write {limit} tokens" in issue.message
        assert "has 512" in issue.message


def test_limit_when_one_agent_has_its_own_then_that_one_is_named(tmp_path: Path) -> None:
    agents = {
        "tool": {"policy": "p"},
        "planner": {"policy": "p", "sampling": {"max_new_tokens": 4096}},
    }
    folder = model(tmp_path, max_position_embeddings=512)
    [issue] = context_issues(spec(folder, agents=agents))
    assert issue.pointer == "/agents/planner/sampling/max_new_tokens"


def test_limit_when_evaluation_has_a_longer_one_then_that_is_named(tmp_path: Path) -> None:
    folder = model(tmp_path, max_position_embeddings=512)
    evaluation = {"sampling": {"max_new_tokens": 600}}
    issues = context_issues(spec(folder, eval=evaluation))
    assert {issue.pointer for issue in issues} == {"/eval/sampling/max_new_tokens"}
    assert context_issues(spec(folder, eval=evaluation | {"num_tasks": 0})) == []


def test_context_when_rope_is_scaled_then_is_what_the_engines_serve(tmp_path: Path) -> None:
    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    folder = model(tmp_path, max_position_embeddings=512, rope_scaling=scaled)
    assert context_length(folder) == 512


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"max_position_embeddings": "many"}'])
def test_context_when_the_folder_does_not_say_it_then_nothing_is_refused(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert context_length(tmp_path) is None
    assert context_issues(spec(tmp_path, sampling={"max_new_tokens": 131072})) == []
    assert context_issues(spec(Path("Qwen/Qwen3-0.6B"))) == []
