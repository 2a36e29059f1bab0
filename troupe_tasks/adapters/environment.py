"""Wraps a stateful environment as a pure function: a state is the way there and what it shows.

``step`` finds a live copy that stands at the state, or replays the history into one. K candidates
of one state cost one step and K - 1 replays; see docs/adapters.md for the figures.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.tasks.agents import known_agent
from troupe.tasks.content import TextPart
from troupe.tasks.family import Message, Observation, Task, Transition
from troupe_tasks.adapters.actions import Actions
from troupe_tasks.adapters.pool import Worlds
from troupe_tasks.adapters.record import Record, decode, encode, first_record, next_record

FORMAT, OWN = "format", "own"
"""Local terms: the answer could be read; what the environment paid the agent."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How an adapted environment is played."""

    agents: tuple[str, ...]
    max_steps: int
    reward_scale: float
    unread_reward: float
    prompt: str


class AdaptedEnvironment:
    """See ``troupe.tasks.family.Environment``."""

    def __init__(self, worlds: Worlds, actions: Mapping[str, Actions], rules: Rules) -> None:
        self._worlds = worlds
        self._actions = actions
        self._rules = rules

    def reset(self, task: Task) -> bytes:
        """Begin with the seed in the task's payload."""
        seed = int(json.loads(task.payload)["seed"])
        world, moment = self._worlds.begin(seed)
        record = first_record(seed, moment, world.save())
        self._worlds.keep(record, world)
        return encode(record)

    def observe(self, state: bytes, agent: str) -> Observation:
        """The prompt of ``agent``, or nothing when it is not its turn."""
        record = decode(state)
        shown = record.prompts.get(self._known(agent))
        if shown is None:
            return ()
        instruction = self._actions[agent].ask()
        text = f"{shown}\n{instruction}".strip() or "Your turn."
        image = record.image(agent)
        user = Message("user", text if image is None else (image, TextPart(text)))
        return (Message("system", self._rules.prompt), user) if self._rules.prompt else (user,)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Carry out what can be read of ``action``; anything else costs a step and is paid 0."""
        before = decode(state)
        parsed = self._actions[self._known(agent)].read(action)
        if before.is_done:
            return _transition(before, agent, None, 0.0, {})
        if parsed is None or agent not in before.prompts:
            return self._idled(before, agent)
        return self._carried_out(before, agent, parsed)

    def _carried_out(self, before: Record, agent: str, parsed: Any) -> Transition:
        world = self._worlds.at(before)
        try:
            moment = world.act(agent, parsed)
            saved = world.save()
        except BaseException:
            world.close()
            raise
        scale = self._rules.reward_scale
        rewards = {name: scale * float(paid) for name, paid in moment.rewards.items()}
        if not all(math.isfinite(paid) for paid in rewards.values()):
            world.close()
            raise InvalidArgumentError(f"the environment paid {dict(moment.rewards)}: not finite")
        after = next_record(before, agent, parsed, moment, saved, sum(rewards.values()))
        self._worlds.keep(after, world)
        if after.num_steps >= self._rules.max_steps:
            after = replace(after, is_done=True)
        return _transition(after, agent, parsed, sum(rewards.values()), rewards)

    def _idled(self, before: Record, agent: str) -> Transition:
        num_steps, paid = before.num_steps + 1, self._rules.unread_reward
        after = replace(
            before,
            num_steps=num_steps,
            is_done=num_steps >= self._rules.max_steps,
            total=before.total + paid,
        )
        return _transition(after, agent, None, paid, {})

    def _known(self, agent: str) -> str:
        return known_agent(agent, self._rules.agents, task="the task")


def _transition(
    after: Record, agent: str, parsed: Any, team_reward: float, rewards: Mapping[str, float]
) -> Transition:
    local = {FORMAT: float(parsed is not None)}
    for name, paid in rewards.items():
        local[OWN if name == agent else f"{name}/{OWN}"] = paid
    return Transition(
        encode(after),
        team_reward,
        local,
        done=after.is_done,
        success=after.is_done and after.is_success,
        info={"action": parsed, "return": after.total, **after.note},
    )
