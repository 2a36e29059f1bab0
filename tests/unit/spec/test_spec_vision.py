"""What a job asks of models that take images and can't have is refused before anything starts."""

import json
from pathlib import Path
from typing import Any

from troupe.spec import JobSpec, parse_spec
from troupe.spec.context import context_length
from troupe.spec.vision import takes_images, vision_issues

SEES = {"model_type": "qwen2_5_vl", "vision_config": {}, "text_config": {}}
READS = {"model_type": "qwen3"}


def _spec(folder: Path, config: dict[str, Any] | None, **more: Any) -> JobSpec:
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    train = {"kind": "lora", "vision": more.pop("vision", False)}
    document: dict[str, Any] = {
        "name": "t",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": ["tool", "planner"]},
        "agents": {"tool": {"policy": "p"}, "planner": {"policy": "p"}},
        "policies": {"p": {"model": str(folder), "train": train}},
    }
    return parse_spec({**document, **more}, source="test")


def test_critic_when_a_policy_sees_then_is_refused(tmp_path: Path) -> None:
    mappo: Any = {"kind": "mappo", "critic": {}}
    [issue] = vision_issues(_spec(tmp_path, SEES, algorithm=mappo))
    assert issue.pointer == "/algorithm/critic"
    assert "reads text alone, and the model of policy 'p' takes images" in issue.message
    assert vision_issues(_spec(tmp_path, SEES)) == []
    assert vision_issues(_spec(tmp_path, READS, algorithm=mappo)) == []


def test_vision_when_the_model_has_no_tower_then_training_it_is_refused(tmp_path: Path) -> None:
    [issue] = vision_issues(_spec(tmp_path, READS, vision=True))
    assert issue.pointer == "/policies/p/train/vision"
    assert "takes no images" in issue.message
    assert vision_issues(_spec(tmp_path, SEES, vision=True)) == []


def test_issues_when_the_model_is_not_on_this_machine_then_nothing_is_refused(
    tmp_path: Path,
) -> None:
    assert takes_images(str(tmp_path)) is None
    assert vision_issues(_spec(tmp_path, None, vision=True)) == []


def test_context_when_the_model_sees_then_is_that_of_its_language_model(tmp_path: Path) -> None:
    config = SEES | {"text_config": {"max_position_embeddings": 512}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert context_length(tmp_path) == 512


def test_vision_issues_when_the_task_shows_images_and_no_model_takes_any_then_names_observe(
    tmp_path: Path,
) -> None:
    task = {"name": "plan_path", "params": {"observe": "image"}}
    [issue] = vision_issues(_spec(tmp_path, READS, task=task))
    assert issue.pointer == "/task/params/observe"
    assert "vision-language" in issue.message
    assert vision_issues(_spec(tmp_path, SEES, task=task)) == []
    assert vision_issues(_spec(tmp_path, None, task=task)) == []
