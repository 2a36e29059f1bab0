"""Follow on an agent program whose outcome alone is paid: an early answer counts."""

import re
from random import Random
from typing import Any

import pytest
from program_world import params_of

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.build import load_parts
from troupe.episodes.local import LocalEnv
from troupe.episodes.player import Played
from troupe.ids import prompt_digest
from troupe.spec import parse_spec

SEATS: dict[str, Any] = {
    "solver": {"system": "You are the solver"},
    "verifier": {"system": "You are the verifier"},
}


class HalfRight:
    """A policy whose sums are right about half of the time."""

    async def generate(self, request, *, timeout_s):
        seen = request.prompt[-1].content
        right = sum(int(n) for n in re.findall(r"\d+", seen))
        texts = [
            str(right + Random(f"{request.seed}/{k}").randrange(2))
            for k in range(request.num_candidates)
        ]
        ids = list(seen.encode())
        found = [Candidate(list(t.encode()), [0.0] * len(t), t, "stop") for t in texts]
        return Generation(ids, prompt_digest(ids), found, request.policy_version, 0.0)


async def plays(algorithm: dict[str, Any], num_tasks: int) -> list[Played]:
    spec = parse_spec(
        {
            "name": "followed",
            "steps": 1,
            "task": {"name": "program", "params": params_of("pair", seats=SEATS)},
            "workflow": {"kind": "self_play", "order": list(SEATS), "max_turns": 4},
            "agents": {seat: {"policy": seat} for seat in SEATS},
            "policies": {seat: {"model": "m"} for seat in SEATS},
            "algorithm": {"group_size": 4, **algorithm},
            "eval": {"num_tasks": 0},
        }
    )
    parts = load_parts(spec)
    with LocalEnv(parts.family) as env:
        player = parts.player(HalfRight(), env)
        return [await player.play(_ticket(index)) for index in range(num_tasks)]


def _ticket(index: int) -> pb.Ticket:
    return pb.Ticket(
        ticket_id=f"followed/train-00000/{index:05d}",
        job_id="followed",
        round_id="train-00000",
        kind=pb.ROUND_KIND_TRAIN,
        split="train",
        task_index=index,
        policy_versions=dict.fromkeys(SEATS, 0),
    )


def of_solver(played: list[Played]) -> list[pb.Group]:
    groups = [group for one in played for group in one.groups if group.agent == "solver"]
    assert all(len(group.prompts) == 1 for group in groups)
    return groups


@pytest.mark.timeout(300)
async def test_solver_when_only_the_outcome_is_paid_then_follow_alone_compares() -> None:
    # The solver's answer is the program's; the episode is paid after the verifier's.
    flat = of_solver(await plays({"kind": "at_grpo"}, 3))
    assert [[c.reward for c in group.candidates] for group in flat] == [[0.0] * 4] * 3
    played = await plays({"kind": "follow", "follow": {"executions": 2}}, 3)
    found: set[float] = set()
    for one, group in zip(played, of_solver(played), strict=True):
        (shown,) = [g for g in one.episode.groups if g.agent == "solver"]
        right = sum(int(n) for n in re.findall(r"\d+", shown.prompts[0].messages[-1].content))
        for candidate in group.candidates:
            assert candidate.reward == float(candidate.text == str(right))
            found.add(candidate.reward)
    assert found == {0.0, 1.0}
