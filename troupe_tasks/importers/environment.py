"""An imported environment as a pure function: a state is the answers so far and what is asked.

``step`` finds the live rollout that stands at the state, or replays the answers into a new one.
"""

import json
from dataclasses import replace

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.tasks.agents import known_agent
from troupe.tasks.content import writable
from troupe.tasks.family import Message, Observation, Task, Transition
from troupe_tasks.adapters.pool import Worlds
from troupe_tasks.adapters.record import Record, decode, encode, first_record, next_record
from troupe_tasks.adapters.world import World
from troupe_tasks.importers.process import SpentError
from troupe_tasks.importers.world import TEAM, Guests, Row

MAX_ANSWER = 100_000
"""Characters of an answer that the environment sees."""


class ImportedEnvironment:
    """See ``troupe.tasks.family.Environment``. Close it after use: it holds processes."""

    def __init__(
        self, agents: tuple[str, ...], rows: tuple[Row, ...], worlds: Worlds, guests: Guests,
        max_calls: int,
    ) -> None:  # fmt: skip
        self._agents = agents
        self._rows = rows
        self._worlds = worlds
        self._guests = guests
        self._max_calls = max_calls

    def reset(self, task: Task) -> bytes:
        """Begin a rollout of the row in the task's payload, up to its first question."""
        row = json.loads(task.payload)
        number = int(row["row"])
        if number >= len(self._rows) or self._rows[number].key != row["key"]:
            raise InvalidArgumentError(
                f"row {number} is another one here: the environment's data differs between "
                "processes; install the same version of it, and the same data sets"
            )
        world, moment = self._worlds.begin(number)
        record = first_record(number, moment, None)
        self._worlds.keep(record, world)
        return encode(record)

    def observe(self, state: bytes, agent: str) -> Observation:
        """What the agent is asked, or nothing when it is not asked."""
        prompt = decode(state).prompts.get(self._known(agent))
        if prompt is None:
            return ()
        return tuple(Message(role, text) for role, text in json.loads(prompt))

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Answer what the agent is asked, and let the rollout go on."""
        before = decode(state)
        if self._known(agent) not in before.prompts or before.is_done:
            return self._idled(before)
        # A lone surrogate is no text that JSON of another program could hold.
        text = writable(action[:MAX_ANSWER])
        if not text.strip():
            text = ""
        world = self._at(before)
        try:
            moment = world.act(agent, text)
        except SpentError as error:
            # The answer made the environment compute without end: the agent's doing.
            world.close()
            return self._ended(before, "too_hard", error.message)
        except BaseException:
            world.close()
            raise
        after = next_record(before, agent, text, moment, None, moment.rewards.get(TEAM, 0.0))
        self._worlds.keep(after, world)
        if after.num_steps >= self._max_calls and not after.is_done:
            return self._ended(after, "too_many_calls", f"more than {self._max_calls} calls")
        local = {_local(name, agent): paid for name, paid in moment.rewards.items() if name != TEAM}
        team = moment.rewards.get(TEAM, 0.0)
        return Transition(
            encode(after), team, local, after.is_done, after.is_success, dict(moment.info)
        )

    def close(self) -> None:
        """End every rollout and its process."""
        self._worlds.close()
        self._guests.close()

    def _at(self, record: Record) -> World:
        """The live rollout that stands at ``record``.

        What a replay asks has once been done within the bounds: that it takes longer now is the
        machine's doing.
        """
        try:
            return self._worlds.at(record)
        except SpentError as error:
            raise UnavailableError(f"a replay took longer than the first play: {error}") from error

    def _ended(self, record: Record, failure: str, message: str) -> Transition:
        """The end of an episode by the team's own doing: it is paid nothing for it."""
        over = replace(record, prompts={}, is_done=True, is_success=False)
        info = {"failure": failure, "message": message[:500]}
        return Transition(encode(over), 0.0, {}, True, False, info)

    def _idled(self, before: Record) -> Transition:
        """Nothing, but for a bound on how often an agent that is not asked may act."""
        if before.is_done:
            return Transition(encode(before), 0.0, {}, True, before.is_success)
        num_steps = before.num_steps + 1
        over = num_steps >= 2 * self._max_calls
        after = replace(before, num_steps=num_steps, is_done=over)
        return Transition(encode(after), 0.0, {}, over, False)

    def _known(self, agent: str) -> str:
        return known_agent(agent, self._agents, task="the task")


def _local(name: str, agent: str) -> str:
    """A term as the acting agent's transition names it: its own without its name."""
    whose, _, term = name.partition("/")
    return term if whose == agent else name
