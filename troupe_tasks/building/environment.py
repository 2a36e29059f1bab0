"""Judges one turn of a builder on its own copy of the site.

The team is paid for a new best overlap above what one command reaches, so building, breaking and
building again earns nothing.
"""

import json
from dataclasses import asdict, dataclass

from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.building import text
from troupe_tasks.building.blueprint import Blueprint
from troupe_tasks.building.commands import read_commands
from troupe_tasks.building.score import one_command_overlap, overlap, progress, right_and_wrong
from troupe_tasks.building.site import empty, obeyed

RETURN_BOUND = 1.0
"""Progress sums to at most all of it."""


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode: the blueprint as JSON, the world, and the best overlap so far."""

    blueprint: str
    world: str
    best: float = 0.0
    refusals: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether the building was finished."""
        return self.best >= 1.0


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":")).encode()


def decode_state(data: bytes) -> tuple[State, Blueprint]:
    """The state that ``encode_state`` wrote, and its blueprint."""
    raw = json.loads(data)
    state = State(raw["blueprint"], raw["world"], raw["best"], tuple(raw["refusals"]))
    return state, Blueprint.model_validate_json(state.blueprint)


class BuildEnvironment:
    """The pure function of Build: see ``troupe.tasks.family.Environment``."""

    def __init__(self, agents: tuple[str, ...], max_commands: int, style: text.Style) -> None:
        self._agents = agents
        self._max_commands = max_commands
        self._style: text.Style = style

    def reset(self, task: Task) -> bytes:
        """The empty site."""
        payload = task.payload.decode()
        blueprint = Blueprint.model_validate_json(payload)
        return encode_state(State(payload, empty(blueprint)))

    def observe(self, state: bytes, agent: str) -> Observation:
        """The blueprint, the site and the builder's materials; empty when it is finished."""
        decoded, blueprint = decode_state(state)
        usable = self._usable(blueprint, agent)
        if decoded.is_done:
            return ()
        return text.observation(
            blueprint,
            decoded.world,
            agent,
            usable,
            decoded.refusals,
            style=self._style,
            max_commands=self._max_commands,
            is_solo=len(self._agents) == 1,
        )

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Do the commands in ``action``, in order."""
        before, blueprint = decode_state(state)
        usable = self._usable(blueprint, agent)
        if before.is_done:
            return _transition(before, before, blueprint, {})
        commands = read_commands(action, blueprint.materials, self._max_commands)
        world, refusals = before.world, list[str]()
        for number, command in enumerate(commands.items, start=1):
            if command is None:
                refusals.append(f"{number}: no such material")
                continue
            done = obeyed(blueprint, world, usable, command)
            world = done.world
            if done.refusal:
                refusals.append(f"{number}: {done.refusal}")
        best = max(before.best, overlap(blueprint, world))
        after = State(before.blueprint, world, best, tuple(refusals))
        terms = {
            "format": 0.0 if commands.is_well_formed else -1.0,
            "legal": -1.0 if refusals else 0.0,
            "right": _surplus(blueprint, world) - _surplus(blueprint, before.world),
        }
        return _transition(before, after, blueprint, terms)

    def _usable(self, blueprint: Blueprint, agent: str) -> str:
        known_agent(agent, self._agents, task="Build")
        return blueprint.usable(self._agents.index(agent), len(self._agents))


def _surplus(blueprint: Blueprint, world: str) -> float:
    """Right blocks less wrong ones, as a share of the blueprint's blocks: at most 1."""
    right, wrong = right_and_wrong(blueprint, world)
    return (right - wrong) / sum(right_and_wrong(blueprint, blueprint.target))


def _transition(
    before: State, after: State, blueprint: Blueprint, terms: dict[str, float]
) -> Transition:
    floor = one_command_overlap(
        blueprint.target, blueprint.width, blueprint.depth, blueprint.height
    )
    info = {
        "blueprint": blueprint.id,
        "overlap": overlap(blueprint, after.world),
        "unpaid_below": floor,
        "refusals": list(after.refusals),
    }
    return Transition(
        encode_state(after),
        progress(after.best, floor) - progress(before.best, floor),
        terms,
        done=after.is_done,
        success=after.is_done,
        info=info,
    )
