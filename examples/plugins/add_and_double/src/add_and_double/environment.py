"""Judges one action: a pure function of the state bytes, the agent and its text."""

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Observation, Task, Transition

from add_and_double import state as states
from add_and_double import text
from add_and_double.state import AGENTS, State, num_left, other

RETURN_BOUND = 1.0
"""The team is paid 1 once, when the number meets the target, and never again."""


class Environment:
    """See ``troupe.tasks.family.Environment``: equal arguments give equal results."""

    def reset(self, task: Task) -> bytes:
        """The first state; here a task's payload is one."""
        return task.payload

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees."""
        return text.observation(states.decode(state), _known(agent))

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Apply what can be read of ``action``; what cannot be read changes nothing."""
        before = states.decode(state)
        choice = text.read_choice(_known(agent), action)
        after = before if choice is None else states.apply(before, agent, choice)
        newly_solved = after.is_solved and not before.is_solved
        return Transition(
            state=states.encode(after),
            team_reward=1.0 if newly_solved else 0.0,
            local_rewards={
                "format": float(choice is not None),
                "useful": float(choice is not None and _is_useful(before, after, agent)),
            },
            done=after.is_over,
            success=after.is_solved,
            info={"choice": choice, "number": after.number, "target": after.target},
        )


def _is_useful(before: State, after: State, agent: str) -> bool:
    """The action is one of a shortest way to the target."""
    if before.is_over or after.number > after.target:
        return False
    left = num_left(before.number, before.target, agent)
    then = num_left(after.number, after.target, other(agent))
    return left is not None and then is not None and then < left


def _known(agent: str) -> str:
    if agent not in AGENTS:
        raise InvalidArgumentError(f"no agent {agent!r} here; known: {', '.join(AGENTS)}")
    return agent
