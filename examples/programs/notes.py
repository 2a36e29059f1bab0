"""Notes as a task: whoever answers sums one up twice, in a short and in a long sentence.

It is imported by Troupe, not by the programs. Each sentence is paid by how many facts of the note
it names, whether its length is right, and whether it ends; `score` pays each writer for its own.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from troupe import SimpleTask, Transition
from troupe.tasks.simple import state_value

WANTED = {"Short": (2, 6, 12), "Long": (5, 14, 30)}
"""Of each sentence: facts that pay in full, and its least and most words."""
OTHERWISE = 0.5
"""A sentence of a wrong length, or without an end, is paid so much of it; with both, the square."""

_NAMES = "Anna Ben Clara David Emma Felix Grace Henry Ivy Jack Karen Leo Maria Noah Olga Peter"
_CHOICES = {
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "thing": "bicycle radio boat camera guitar lamp tent piano kettle clock stove telescope",
    "place": "market library station harbour museum garden school park bakery hospital",
    "helper": "brother sister neighbour teacher uncle aunt friend cousin daughter son",
}


class Notes(SimpleTask):
    """Sum up a note: `Short: ...` on one line and `Long: ...` on another."""

    agents = ("writer",)
    local_terms = {"writer": {}}  # noqa: RUF012
    usual_workflow = {"max_turns": 1}  # noqa: RUF012

    def draw(self, rng: Random) -> dict[str, str]:
        """Six facts."""
        person, other = rng.sample(_NAMES.split(), 2)
        drawn = {fact: rng.choice(words.split()) for fact, words in _CHOICES.items()}
        return {"person": person, "other": other, **drawn}

    def observe(self, state: dict[str, str], agent: str) -> str:
        """The note."""
        return (
            "On {day} {person} bought an old {thing} at the {place}. It was broken, but a {helper} "
            "helped to repair it. Now {other} wants to buy the {thing}."
        ).format(**state)

    def step(self, state: dict[str, str], agent: str, action: str) -> Transition:
        """Paid the mean of both sentences' worth; one answer ends it."""
        paid = [worth(state, label, sentence_of(action, label)) for label in WANTED]
        info = {label.lower(): round(value, 4) for label, value in zip(WANTED, paid, strict=True)}
        value = sum(paid) / len(paid)
        return self.transition(state, value, done=True, success=min(paid) == 1.0, info=info)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A pair that is paid in full."""
        return (
            "Short: {person} bought an old {thing} at the {place}.\n"
            "Long: On {day} {person} bought an old {thing} at the {place}, repaired it with a "
            "{helper}, and {other} wants it."
        ).format(**state_value(state))


def sentence_of(action: str, label: str) -> str:
    """Of the first line that begins with the label; a label within a sentence is a word of it."""
    lines = (line.strip() for line in action.splitlines())
    found = (line for line in lines if line.startswith(f"{label}:"))
    return next(found, "").removeprefix(f"{label}:")


def worth(state: Mapping[str, str], label: str, sentence: str) -> float:
    """What one sentence is worth, 0 to 1."""
    num_facts, least, most = WANTED[label]
    words = [word.strip(".,;:!?'\"()").removesuffix("'s").lower() for word in sentence.split()]
    named = sum(fact.lower() in words for fact in state.values())
    fits = least <= len(words) <= most
    ends = re.search(r"[.!?]['\"]?\s*$", sentence) is not None
    return min(1.0, named / num_facts) * OTHERWISE ** (not fits) * OTHERWISE ** (not ends)


def score(call: Any) -> Mapping[str, float]:
    """Term `sentence`: what the sentence of this seat is worth by itself."""
    label = call.agent.capitalize()
    return {"sentence": len(WANTED) * call.judged(f"{label}: {' '.join(call.text.split())}")}
