"""Programs written with the frameworks themselves, unmodified: nothing is dropped.

`make test-programs` makes their virtual environments; without them the tests are skipped.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_policy import ChancePolicy

from troupe.api.records.v1 import records_pb2 as pb
from troupe.episodes.build import load_parts
from troupe.episodes.local import LocalEnv
from troupe.ids import ticket_id, train_round
from troupe.spec import load_spec
from troupe.spec.job import JobSpec

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "programs"
EPISODES = 4

SELECTOR = {
    "selector": {"system": "role play game|Read the following|Read the above", "rest": True}
}
PROGRAMS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("langgraph", "run", "at_grpo", {}),
    ("langgraph", "run", "grpo", {}),
    ("langgraph", "streamed", "at_grpo", {}),
    ("langgraph", "fan_out", "at_grpo", {}),
    ("langgraph", "with_tool", "at_grpo", {}),
    ("openai_sdk", "run", "at_grpo", {}),
    ("openai_sdk", "responses", "at_grpo", {}),
    ("ag2", "run", "at_grpo", {}),
    ("ag2", "streamed", "at_grpo", {}),
    ("ag2", "with_tool", "at_grpo", {}),
    ("ag2_classic", "run", "at_grpo", {}),
    ("ag2_classic", "group", "at_grpo", SELECTOR),
    ("autogen", "run", "at_grpo", {}),
    ("autogen", "with_tool", "at_grpo", {}),
    ("autogen", "selector", "at_grpo", SELECTOR),
    ("autogen", "swarm", "at_grpo", {}),
    ("llamaindex", "run", "at_grpo", {}),
    ("llamaindex", "handoff", "at_grpo", {}),
    ("openai_agents", "run", "at_grpo", {}),
    ("openai_agents", "handoff", "at_grpo", {}),
    ("anthropic_sdk", "run", "at_grpo", {}),
    ("anthropic_sdk", "with_tool", "at_grpo", {}),
]

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.timeout(600)]


def spec_of(framework: str, attribute: str, algorithm: str, seats: dict[str, Any]) -> JobSpec:
    document = load_spec(EXAMPLES / f"{framework}.yaml").model_dump(mode="json")
    params = document["task"]["params"]
    params["program"] = f"team:{attribute}"
    params["seats"] = {**params["seats"], **seats}
    document["algorithm"].update(kind=algorithm, group_size=3)
    for agent in seats:
        document["agents"][agent] = {"policy": "solver"}
        document["workflow"]["order"].append(agent)
    return JobSpec.model_validate(document)


def ticket(spec: JobSpec, index: int) -> pb.Ticket:
    return pb.Ticket(
        ticket_id=ticket_id(spec.name, train_round(0), index),
        job_id=spec.name,
        round_id=train_round(0),
        kind=pb.ROUND_KIND_TRAIN,
        split="train",
        task_index=index,
        policy_versions=dict.fromkeys(spec.policies, 0),
    )


@pytest.mark.parametrize(
    ("framework", "attribute", "algorithm", "seats"),
    [pytest.param(*p, id=f"{p[0]}-{p[1]}-{p[2]}") for p in PROGRAMS],
)
async def test_framework_when_its_program_is_played_then_nothing_is_dropped(
    framework: str,
    attribute: str,
    algorithm: str,
    seats: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not (ROOT / ".venv-programs" / framework / "bin" / "python").exists():
        pytest.skip(f"no .venv-programs/{framework}: make program-venv NAME={framework}")
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    spec = spec_of(framework, attribute, algorithm, seats)
    parts, policy = load_parts(spec), ChancePolicy()
    with LocalEnv(parts.family) as env:
        player = parts.player(policy, env)
        # What a program is asked differently by in a replay raises here, and would be dropped.
        played = [await player.play(ticket(spec, index)) for index in range(EPISODES)]
    groups = [group for one in played for group in one.groups]
    assert len(played) == EPISODES
    assert {group.agent for group in groups} >= {"solver"}
    if algorithm == "at_grpo":
        assert all(len(group.prompts) == 1 for group in groups)
    if attribute in ("with_tool", "handoff", "swarm"):
        assert policy.num_tool_calls > 0
