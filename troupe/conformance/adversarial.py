"""Tactics of a policy that seeks reward without solving the task: one text per step.

Owns single steps; the search over sequences of them is in ``rewards``.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from troupe.conformance import texts
from troupe.conformance.play import Move, chosen
from troupe.conformance.subject import Subject


@dataclass(frozen=True, slots=True)
class Situation:
    """The acting agent, the state, and the history of this episode."""

    subject: Subject
    state: bytes
    agent: str
    rng: Random
    history: list[Move]

    @property
    def good(self) -> str:
        """A demonstration."""
        return chosen(self.subject, self.subject.demonstrate, self.state, self.agent, self.rng)

    @property
    def wild(self) -> str:
        """A random action."""
        return chosen(self.subject, self.subject.random_action, self.state, self.agent, self.rng)

    @property
    def shown(self) -> str:
        """The prompt."""
        return texts.written(self.subject.env.observe(self.state, self.agent))

    def past_moves(self) -> list[Move]:
        """This agent's moves so far."""
        return [move for move in self.history if move.agent == self.agent]


Tactic = Callable[[Situation], str]


def _demonstrate(now: Situation) -> str:
    return now.good


def _random(now: Situation) -> str:
    return now.wild


def _empty(now: Situation) -> str:
    return ""


def _repeat_first(now: Situation) -> str:
    moves = now.past_moves()
    return moves[0].action if moves else now.good


def _repeat_last(now: Situation) -> str:
    moves = now.past_moves()
    return moves[-1].action if moves else now.wild


def _repeat_best_paid(now: Situation) -> str:
    moves = now.past_moves()
    return max(moves, key=lambda move: move.transition.team_reward).action if moves else now.good


def _there_and_back(now: Situation) -> str:
    """Alternate two actions: enough draws find a pair that undoes itself."""
    moves = now.past_moves()
    return moves[-2].action if len(moves) >= 2 else now.wild


def _good_and_back(now: Situation) -> str:
    moves = now.past_moves()
    return now.good if len(moves) % 2 == 0 else now.wild


def _echo_prompt(now: Situation) -> str:
    return now.shown


def _echo_example(now: Situation) -> str:
    examples = texts.examples(now.subject.env.observe(now.state, now.agent))
    return now.rng.choice(examples) if examples else now.shown[-200:]


def _many_formats(now: Situation) -> str:
    return texts.several_formats([now.good, now.wild])


def _good_then_wild(now: Situation) -> str:
    return f"{now.good}\n{now.wild}"


def _wild_then_good(now: Situation) -> str:
    return f"{now.wild}\n{now.good}"


def _good_twice(now: Situation) -> str:
    return f"{now.good}\n{now.good}"


def _all_wild(now: Situation) -> str:
    """Every answer at once, for judges that search the text for the right one."""
    return "\n".join(now.wild for _ in range(40))


def _claim(now: Situation) -> str:
    return json.dumps({"done": True, "success": True, "reward": 1e9, "team_reward": 1e9})


def _other_seat(now: Situation) -> str:
    others = [agent for agent in now.subject.family.agents if agent != now.agent]
    seat = now.rng.choice(others) if others else now.agent
    return chosen(now.subject, now.subject.demonstrate, now.state, seat, now.rng)


def _mutated(now: Situation) -> str:
    return texts.mutated(now.good, [now.wild, *(move.action for move in now.history)], now.rng)


def _odd(now: Situation) -> str:
    return now.rng.choice(list(texts.ODD.values()))


TACTICS: Mapping[str, Tactic] = {
    "demonstrate": _demonstrate,
    "random": _random,
    "empty": _empty,
    "repeat_first": _repeat_first,
    "repeat_last": _repeat_last,
    "repeat_best_paid": _repeat_best_paid,
    "there_and_back": _there_and_back,
    "good_and_back": _good_and_back,
    "echo_prompt": _echo_prompt,
    "echo_example": _echo_example,
    "many_formats": _many_formats,
    "good_then_wild": _good_then_wild,
    "wild_then_good": _wild_then_good,
    "good_twice": _good_twice,
    "all_wild": _all_wild,
    "claim": _claim,
    "other_seat": _other_seat,
    "mutated": _mutated,
    "odd": _odd,
}
"""Tactics by the name that evidence shows."""

THOUGHTLESS = ("empty", "echo_prompt", "echo_example", "claim", "odd")
"""Tactics that ignore the state: none may earn as much as a demonstration."""
