"""A recorded line of play, and the fields that any process computes by replaying it."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from troupe.conformance import digest
from troupe.errors import TroupeError
from troupe.tasks.family import Environment, Split, TaskFamily
from troupe.tasks.optional import optional_method


@dataclass(frozen=True, slots=True)
class PlayScript:
    """A task and the (agent, action) pairs that are played on it."""

    split: Split
    index: int
    moves: Sequence[tuple[str, str]]


def fields_of_script(
    family: TaskFamily, env: Environment, script: PlayScript
) -> list[dict[str, str]]:
    """One entry for the task and one for each step: every field as a short text."""
    task = family.taskset().task(script.split, script.index)
    state = env.reset(task)
    entries = [{"task": digest.of_task(task), "first_state": digest.short(state)}]
    for number, (agent, action) in enumerate(script.moves):
        prompts = {
            f"prompt of {a}": digest.of_messages(env.observe(state, a)) for a in family.agents
        }
        acts = {
            name: str(act(state, agent, Random(number)))
            for name in ("demonstrate", "random_action")
            if (act := optional_method(family, name)) is not None
        }
        try:
            done = env.step(state, agent, action)
        except TroupeError:
            raise
        except (Exception, SystemExit) as error:
            entries.append({**prompts, **acts, "raised": type(error).__name__})
            break
        entries.append({**prompts, **acts, **digest.fields_of(done)})
        state = done.state
    return entries
