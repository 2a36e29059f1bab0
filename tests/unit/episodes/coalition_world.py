"""A team game in which every act matters to every other, and a policy whose draws are known.

Agents say numbers from 0 to 3 in turn and see the last two. The team's reward of an act and the end
of the game depend on all numbers so far, so no part of a return can be told from another by looks.
"""

import json
from collections.abc import Sequence
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
from troupe.workflows.turn_based import TurnBased

ROUND, SEED = "train-00000", 5
TEAM_WEIGHT, LOCAL_WEIGHT = 0.5, 0.1


def team_job(agents: Sequence[str], *, turns: int = 2, size: int = 2, **changes: Any) -> JobSpec:
    document: dict[str, Any] = {
        "name": "t",
        "seed": SEED,
        "steps": 1,
        "task": {"name": "sayings"},
        "workflow": {"kind": "turn_based", "order": list(agents), "max_turns": turns},
        "agents": {agent: {"policy": "p"} for agent in agents},
        "policies": {"p": {"model": "m"}},
        "algorithm": {"kind": "grpo", "group_size": size},
        "reward": {"alpha": TEAM_WEIGHT},
    }
    return parse_spec(document | changes)


def earned(numbers: Sequence[int]) -> float:
    """The team's reward of the act that made ``numbers``."""
    return Random(f"reward/{list(numbers)}").choice([0.0, 0.0, 1.0, -0.5])


def is_over(numbers: Sequence[int]) -> bool:
    return Random(f"over/{list(numbers)}").random() < 0.1


def shown(agent: str, numbers: Sequence[int]) -> str:
    return f"{agent} after {list(numbers[-2:])}"


def spoken(agent: str, turn: int, trajectory: int, numbers: Sequence[int]) -> int:
    """What ``agent`` says; draws at other places of the episode are independent."""
    seed = derive_seed(SEED, ROUND, 0, agent, turn, trajectory)
    return _drawn(seed, shown(agent, numbers))


def _drawn(seed: int, prompt: str) -> int:
    return Random(f"{seed}/{prompt}").randrange(4)


class Sayings:
    """RolloutPort; ``calls`` are the prompts that were answered."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def generate(self, request, *, timeout_s):
        text = request.prompt[0].content
        self.calls.append(text)
        ids = list(text.encode())
        number = _drawn(request.seed, text)
        said = [Candidate([number], [-0.1 * (1 + number)], str(number), "stop")]
        return Generation(ids, prompt_digest(ids), said, request.policy_version, 0.0)


class SayingsEnv:
    """EnvPort; the state is the list of numbers. ``judged`` counts the acts."""

    def __init__(self, agents: Sequence[str]) -> None:
        self.agents, self.judged = agents, 0

    async def reset(self, *, split, index, observe, timeout_s):
        return Start(f"sayings/{split}/{index}", b"[]", self._views([]))

    async def step(self, *, state, agent, actions, observe, timeout_s):
        self.judged += len(actions)
        return [self._outcome([*json.loads(state), int(text or 0)]) for text in actions]

    def _outcome(self, numbers):
        state, local = json.dumps(numbers).encode(), {"size": float(numbers[-1])}
        done = is_over(numbers)
        return Outcome(state, earned(numbers), local, done, done, "{}", self._views(numbers))

    def _views(self, numbers):
        return {agent: (Message("user", shown(agent, numbers)),) for agent in self.agents}


async def play_team(
    sampler,
    spec: JobSpec,
    rollout: Sayings | None = None,
    kind=pb.ROUND_KIND_TRAIN,
    workflow: TurnBased | None = None,
    env: SayingsEnv | None = None,
) -> Played:
    """One ticket of the game."""
    agents = tuple(spec.agents)
    player = EpisodePlayer(
        spec,
        workflow=workflow or TurnBased(spec.workflow),
        sampler=sampler,
        mix=RewardMix(spec.reward, {agent: {"size": LOCAL_WEIGHT} for agent in agents}),
        rollout=rollout or Sayings(),
        env=env or SayingsEnv(agents),
    )
    ticket = pb.Ticket(
        ticket_id=f"t/{ROUND}/00000",
        job_id="t",
        round_id=ROUND,
        kind=kind,
        split="train",
        policy_versions={"p": 4},
    )
    return await player.play(ticket)
