"""A game whose returns can be followed by hand, and a policy whose draws are known.

Agents a and b take turns and say numbers. At the end the team is paid 1 if their sum can be divided
by 3; a is paid a tenth of each number that it says, as soon as it says it.
"""

import json
from random import Random
from typing import Any

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Candidate, Generation
from troupe.episodes.player import EpisodePlayer, Played
from troupe.episodes.ports import Outcome, Start
from troupe.ids import prompt_digest
from troupe.rewards.mix import RewardMix
from troupe.seeds import derive_seed
from troupe.spec import parse_spec
from troupe.spec.job import JobSpec
from troupe.tasks.family import Message
from troupe.workflows.self_play import SelfPlay

AGENTS = ("a", "b")
WEIGHTS = {"a": {"size": 0.1}, "b": {"size": 0.0}}
ROUND = "train-00000"


def job(*, acts: int = 20, size: int = 2, **changes: Any) -> JobSpec:
    document: dict[str, Any] = {
        "name": "t",
        "seed": 5,
        "steps": 1,
        "task": {"name": "numbers"},
        "workflow": {"kind": "self_play", "order": list(AGENTS), "max_turns": acts},
        "agents": {"a": {"policy": "p"}, "b": {"policy": "q"}},
        "policies": {"p": {"model": "m"}, "q": {"model": "m"}},
        "algorithm": {"kind": "follow", "group_size": size},
    }
    return parse_spec(document | changes)


def paid(history: list[int], length: int) -> float:
    """The team's reward of the action that made ``history``."""
    return float(len(history) == length and sum(history) % 3 == 0)


class NumbersEnv:
    """The state is the list of numbers; the game ends after ``length``."""

    def __init__(self, length: int) -> None:
        self.length = length

    async def reset(self, *, split, index, observe, timeout_s):
        return Start(f"numbers/{split}/{index}", b"[]", self._views([]))

    async def step(self, *, state, agent, actions, observe, timeout_s):
        history = json.loads(state)
        assert AGENTS[len(history) % 2] == agent
        return [self._outcome([*history, int(number)]) for number in actions]

    def _outcome(self, history):
        reward, done = paid(history, self.length), len(history) == self.length
        state, local = json.dumps(history).encode(), {"size": float(history[-1])}
        views = self._views(history)
        return Outcome(state, reward, local, done, bool(reward), "{}", views)

    def _views(self, history):
        mover = AGENTS[len(history) % 2] if len(history) < self.length else ""
        seen = (Message("user", f"{mover} after {history}"),)
        return {agent: seen if agent == mover else () for agent in AGENTS}


def number(seed: int, place: int) -> int:
    """What candidate ``place`` of the call with ``seed`` says."""
    return Random(f"{seed}/{place}").randrange(9)


def said(agent: str, turn: int, trajectory: int, place: int = 0) -> int:
    """The same by the position of the act, for task 0 of the job's first step."""
    return number(derive_seed(5, ROUND, 0, agent, turn, trajectory), place)


class Numbers:
    """A policy of known draws."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    async def generate(self, request, *, timeout_s):
        self.seeds.append(request.seed)
        ids = list(request.prompt[0].content.encode())
        numbers = [number(request.seed, place) for place in range(request.num_candidates)]
        found = [Candidate([n], [-0.5], str(n), "stop") for n in numbers]
        return Generation(ids, prompt_digest(ids), found, request.policy_version, 0.0)


async def play(
    sampler, *, spec: JobSpec | None = None, length: int = 4, rollout: Numbers | None = None, kind=0
) -> Played:
    """One ticket of the game."""
    spec = spec or job()
    player = EpisodePlayer(
        spec,
        workflow=SelfPlay(spec.workflow),
        sampler=sampler,
        mix=RewardMix(spec.reward, WEIGHTS),
        rollout=rollout or Numbers(),
        env=NumbersEnv(length),
    )
    ticket = pb.Ticket(
        ticket_id=f"t/{ROUND}/00000",
        job_id="t",
        round_id=ROUND,
        kind=kind or pb.ROUND_KIND_TRAIN,
        split="train",
        policy_versions={"p": 4, "q": 4},
    )
    return await player.play(ticket)
