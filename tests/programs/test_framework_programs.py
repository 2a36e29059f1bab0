"""Programs written with the frameworks themselves, unmodified: nothing is dropped.

`make test-programs` makes their virtual environments; without them the tests are skipped.
"""

import sys

import pytest

from benchmarks.program_examples import (
    EXAMPLES,
    SHAPES,
    ChancePolicy,
    python_of,
    spec_of,
)
from troupe.episodes.build import load_parts
from troupe.episodes.dryrun import ticket_of
from troupe.episodes.local import LocalEnv
from troupe.spec import load_spec
from troupe.tasks.registry import load_family
from troupe_tasks.programs.family import Program

EPISODES = 4
PLAYS = [
    ("langgraph", "run", "grpo"),
    *((name, shape, "at_grpo") for name, shapes in SHAPES.items() for shape in shapes),
]

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("framework", "shape", "algorithm"), [pytest.param(*play, id="-".join(play)) for play in PLAYS]
)
async def test_framework_when_its_program_is_played_then_nothing_is_dropped(
    framework: str, shape: str, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not python_of(framework).exists():
        pytest.skip(f"no .venv-programs/{framework}: make program-venv NAME={framework}")
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    spec = spec_of(framework, shape, algorithm)
    parts, policy = load_parts(spec), ChancePolicy()
    with LocalEnv(parts.family) as env:
        player = parts.player(policy, env)
        # What a program is asked differently by in a replay raises here, and would be dropped.
        played = [await player.play(ticket_of(spec, index)) for index in range(EPISODES)]
    groups = [group for one in played for group in one.groups]
    assert len(played) == EPISODES
    assert {group.agent for group in groups} >= {"solver"}
    if algorithm == "at_grpo":
        assert all(len(group.prompts) == 1 for group in groups)
    if shape in ("with_tool", "handoff", "swarm"):
        assert policy.num_tool_calls > 0


@pytest.mark.parametrize("said", ["plan R D", ""])
def test_group_chat_when_its_toy_stands_in_for_it_then_both_ask_the_same(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """The base of ag2_plan_path.yaml is warmed up on the toy; an empty answer hangs neither."""
    if not python_of("ag2").exists():
        pytest.skip("no .venv-programs/ag2: make program-venv NAME=ag2")
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    params = load_spec(EXAMPLES / "ag2_plan_path.yaml").task.params
    asked = []
    for changes in ({}, {"folder": "toy", "python": None, "preload": []}):
        family = load_family("program", {**params, **changes})
        assert isinstance(family, Program)
        environment, task = family.environment(), family.taskset().task("train", 3)
        told = environment.probe(task, [said, "REVISE", "plan U", "APPROVE"])
        asked.append([(call["agent"], call["system"], call["turns"]) for call in told["calls"]])
        environment.close()
    assert asked[0] == asked[1]
    assert [agent for agent, *_ in asked[0]] == ["solver", "verifier"] * 2
