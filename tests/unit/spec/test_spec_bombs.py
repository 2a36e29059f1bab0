"""Documents that are small as text and huge as values, or slow to check."""

import time
from typing import Any

import pytest

from troupe.spec import SpecInvalidError, parse_spec, read_yaml
from troupe.spec.base import MAX_NAMED


def merge_bomb(depth: int, width: int = 8) -> str:
    """Each line holds ``width`` times the pairs of the line before it."""
    text = "a: &a0 {k: 1}\n"
    for i in range(1, depth + 1):
        text += f"b{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * width)}]}}\n"
    return text


def crowd(number: int) -> dict[str, Any]:
    names = [f"a{i}" for i in range(number)]
    return {
        "name": "demo",
        "steps": 1,
        "task": {"name": "plan_path"},
        "workflow": {"order": names},
        "agents": {name: {"policy": "p"} for name in names},
        "policies": {"p": {"model": "Qwen/Qwen3-0.6B"}},
    }


@pytest.mark.parametrize("text", [merge_bomb(1, 1), merge_bomb(14), "<<: {a: 1}", "a: {<<: *b}"])
def test_yaml_when_it_merges_then_is_refused_at_once(text: str) -> None:
    with pytest.raises(SpecInvalidError, match=r"merge keys|undefined alias"):
        read_yaml(text)


def test_yaml_when_it_has_plain_aliases_then_is_read() -> None:
    assert read_yaml("a: &x {k: 1}\nb: *x\n'<<': text") == {
        "a": {"k": 1},
        "b": {"k": 1},
        "<<": "text",
    }


def test_agents_when_there_are_too_many_then_are_refused_by_name_and_not_compared() -> None:
    assert len(parse_spec(crowd(MAX_NAMED)).agents) == MAX_NAMED
    began = time.process_time()
    with pytest.raises(SpecInvalidError) as caught:
        parse_spec({**crowd(20_000), "reward": {"weights": {f"x{i}": {} for i in range(20_000)}}})
    pointers = {issue.pointer for issue in caught.value.issues}
    assert pointers == {"/agents", "/workflow/order", "/reward/weights"}
    assert "at most 256" in caught.value.message
    # Comparing each name with each other one takes minutes.
    assert time.process_time() - began < 20.0
