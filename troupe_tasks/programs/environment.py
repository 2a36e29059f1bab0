"""An agent program as a pure function: a state is the answers so far and the calls that wait."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from troupe.errors import TroupeError
from troupe.runtime.telemetry import metrics
from troupe.tasks.actions import is_cut
from troupe.tasks.agents import known_agent
from troupe.tasks.content import writable
from troupe.tasks.family import Observation, Task, Transition
from troupe.tasks.program_ends import PROGRAM_END, end_of_error
from troupe_tasks.adapters.record import Record, decode, encode, first_record, next_record
from troupe_tasks.programs.judge import seed_of
from troupe_tasks.programs.lives import ProgramWorlds
from troupe_tasks.programs.probe import probed
from troupe_tasks.programs.prompts import observed
from troupe_tasks.programs.world import TEAM, ProgramServices, ProgramWorld

MAX_STATE_BYTES = 1024 * 1024


class ProgramEnvironment:
    """See ``troupe.tasks.family.Environment``. Close it after use: it holds processes."""

    def __init__(self, services: ProgramServices, close: Any) -> None:
        params = services.params
        self.services = services
        self._agents = tuple(params.seats)
        self._close = close
        self.worlds = ProgramWorlds(
            lambda: ProgramWorld(services),
            max_live=params.max_live,
            is_replayed=params.replay == "always",
        )

    def reset(self, task: Task) -> bytes:
        """Start the program on ``task``, up to its first model call."""
        seed = seed_of(task)
        with _counted():
            world, moment = self.worlds.begin(seed)
        record = first_record(seed, moment, None)
        self.worlds.keep(record, world)
        return encode(record)

    def observe(self, state: bytes, agent: str) -> Observation:
        """The prompt of the agent's call, or nothing when it is asked nothing."""
        prompt = decode(state).prompts.get(self._known(agent))
        return () if prompt is None else observed(prompt)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Answer the agent's call with ``action``, and run the program on."""
        before = decode(state)
        if before.is_done:
            terms = dict.fromkeys(self._terms(self._known(agent)), 0.0)
            return Transition(state, 0.0, terms, True, before.is_success)
        if self._known(agent) not in before.prompts:
            return self._idled(before, agent)
        answer = _recorded(action, self.services.params.max_answer_chars)
        with _counted():
            world = self.worlds.at(before, agent)
            try:
                moment = world.act(agent, answer)
            except BaseException:
                world.close()
                raise
        local = {name: float(paid) for name, paid in moment.rewards.items()}
        team = local.pop(TEAM, 0.0)
        after = next_record(before, agent, answer, moment, None, team)
        transition, after = self._transition(after, team, local, moment.info)
        self.worlds.keep(after, world)
        return transition

    def probe(self, task: Task, answers: Sequence[str]) -> dict[str, Any]:
        """Run the program once on ``task`` with ``answers``, and tell every call that it makes.

        Seats need not fit yet: ``agent`` is None, and ``problem`` says why. The last answer is
        repeated; without answers each is "ok".
        """
        return probed(self.services, seed_of(task), answers)

    def close(self) -> None:
        """End every program, and what starts them."""
        self.worlds.close()
        self._close()

    def _transition(
        self, after: Record, team: float, local: Mapping[str, float], info: Mapping[str, Any]
    ) -> tuple[Transition, Record]:
        """The transition to ``after``, and what ``after`` is then: over, where it is too big."""
        encoded = encode(after)
        if len(encoded) > MAX_STATE_BYTES:
            failure = "state_too_big"
            told = {PROGRAM_END: failure, "failure": failure}
            team, info = 0.0, {**told, "num_calls": after.num_steps}
            after = replace(after, prompts={}, history=(), is_done=True, is_success=False)
            encoded = encode(replace(after, note=info))
        if PROGRAM_END in info:
            metrics.ENV_PROGRAM_RUNS.labels(info[PROGRAM_END]).inc()
        shown = {name: value for name, value in info.items() if name != "answered"}
        done = Transition(encoded, team, local, after.is_done, after.is_success, shown)
        return done, after

    def _idled(self, before: Record, agent: str) -> Transition:
        """Nothing, but for a bound on how often an agent that is not asked may act."""
        num_steps = before.num_steps + 1
        limit = 2 * self.services.params.max_calls
        after = replace(before, num_steps=num_steps, is_done=num_steps >= limit)
        terms = dict.fromkeys(self._terms(agent), 0.0)
        return Transition(encode(after), 0.0, terms, after.is_done, False)

    def _terms(self, agent: str) -> Mapping[str, float]:
        return self.services.params.seats[agent].weights

    def _known(self, agent: str) -> str:
        return known_agent(agent, self._agents, task="the task")


def _recorded(action: str, max_chars: int) -> Any:
    """``action`` as a state holds it: its text, or ``{"cut": text}`` where a bound cut it."""
    # A lone surrogate is no text that a client could send on.
    text = writable(action[:max_chars])
    return {"cut": text} if is_cut(action) or len(action) > max_chars else text


@contextmanager
def _counted() -> Generator[None]:
    """Count a failure of the program that raises."""
    try:
        yield
    except TroupeError as error:
        if end := end_of_error(error):
            metrics.ENV_PROGRAM_RUNS.labels(end).inc()
        raise
