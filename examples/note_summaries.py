"""Two agents sum up one note: one in a short sentence, the other three times as long.

The pair is paid, so neither agent can do it alone: the lengths must fit each other, and both texts
must name what the note is about. The length ratio is the reward of CoMLRL's quickstart; what is
added is that texts name facts of the note and end as sentences.

troupe model fetch smollm2 --to models/smollm2
troupe train examples/smollm2_summaries.yaml
"""

from random import Random

from pydantic import Field

from troupe import SimpleTask, Transition
from troupe.tasks.family import Message, Observation
from troupe.tasks.simple import TaskParams, state_value

BRIEF, DETAILED = "brief", "detailed"
BRIEF_FACTS, DETAILED_FACTS = 2, 4
MAX_CHARS = 2_000
SUCCESS_WITHIN = 0.5
MIN_WORDS = 6
"""A shorter text is a list of words, and no sentence."""

_PEOPLE = "Anna Ben Clara David Emma Felix Grace Henry Ivy Jack Karen Leo Maria Noah Olga Peter"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_HELPERS = "brother sister neighbour teacher uncle aunt friend cousin daughter son"
_PLACES = "market library station harbour museum garden school park bakery hospital"
_THINGS = {
    "bicycle": "chain",
    "radio": "antenna",
    "boat": "engine",
    "camera": "lens",
    "guitar": "string",
    "lamp": "switch",
    "tent": "zipper",
    "piano": "pedal",
    "kettle": "handle",
    "clock": "spring",
    "stove": "door",
    "telescope": "mirror",
}
_RULES = {
    BRIEF: "Summarize the note in one short sentence.",
    DETAILED: "Summarize the note with all details.",
}


class Params(TaskParams):
    """What `task.params` of a job spec may hold."""

    ratio: float = Field(default=3.0, ge=1.5, le=6.0, description="Wanted ratio of the lengths.")


class NoteSummaries(SimpleTask):
    """A short and a long summary of one note, paid as a pair."""

    Params = Params
    agents = (BRIEF, DETAILED)
    local_terms = {BRIEF: {}, DETAILED: {}}  # noqa: RUF012
    usual_workflow = {"order": [BRIEF, DETAILED], "max_turns": 1}  # noqa: RUF012

    def draw(self, rng: Random) -> dict[str, str]:
        """One note: its facts, and what the first writer wrote."""
        person, other = rng.sample(_PEOPLE.split(), 2)
        thing = rng.choice(list(_THINGS))
        facts = {
            "person": person,
            "other": other,
            "thing": thing,
            "day": rng.choice(_DAYS.split()),
            "helper": rng.choice(_HELPERS.split()),
            "place": rng.choice(_PLACES.split()),
        }
        return {**facts, BRIEF: ""}

    def observe(self, state: dict[str, str], agent: str) -> Observation:
        """The note; neither writer sees the other's text."""
        return (Message("system", _RULES[agent]), Message("user", note(state)))

    def step(self, state: dict[str, str], agent: str, action: str) -> Transition:
        """The first text is kept; the second ends the episode, and the pair is paid."""
        text = " ".join(action[:MAX_CHARS].split())
        if agent == BRIEF:
            return self.transition({**state, BRIEF: text})
        value, ratio, is_good = judge(state, state[BRIEF], text, self.params.ratio)
        info = {"ratio": round(ratio, 3), "value": round(value, 4)}
        return self.transition(state, value, done=True, success=is_good, info=info)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """A pair that is paid in full for the usual ratio."""
        value = state_value(state)
        if agent == BRIEF:
            return _brief(value)
        words = f"{_long(value)} {note(value)}".split()
        wanted = self.params.ratio * len(value[BRIEF] or _brief(value))
        while len(" ".join(words)) > wanted and len(words) > 1:
            words.pop()
        return " ".join(words).rstrip(".") + "."


def note(state: dict[str, str]) -> str:
    """The note that both agents read: six facts in about 28 words."""
    return (
        f"On {state['day']} {state['person']} bought an old {state['thing']} at the "
        f"{state['place']}. The {_THINGS[state['thing']]} was broken, but a {state['helper']} "
        f"helped to repair it. Now {state['other']} wants to buy the {state['thing']}."
    )


def judge(
    state: dict[str, str], brief: str, detailed: str, wanted: float
) -> tuple[float, float, bool]:
    """What the pair is worth (0 to 1), its ratio of characters, and whether it is a success."""
    ratio = len(detailed) / max(1, len(brief))
    fit = max(0.0, 1.0 - abs(ratio - wanted) / (wanted - 1.0))
    named = [_named(state, text) for text in (brief, detailed)]
    coverage = [min(1.0, named[0] / BRIEF_FACTS), min(1.0, named[1] / DETAILED_FACTS)]
    are_sentences = all(
        text.endswith((".", "!", "?")) and len(text.split()) >= MIN_WORDS
        for text in (brief, detailed)
    )
    value = fit * sum(coverage) / 2 * (1.0 if are_sentences else 0.5)
    is_good = abs(ratio - wanted) <= SUCCESS_WITHIN and min(coverage) == 1.0 and are_sentences
    return value, ratio, is_good


def _named(state: dict[str, str], text: str) -> int:
    words = {word.strip(".,;:!?'\"()").removesuffix("'s").lower() for word in text.split()}
    facts = ("person", "other", "thing", "day", "helper", "place")
    return sum(state[fact].lower() in words for fact in facts)


def _brief(state: dict[str, str]) -> str:
    return f"{state['person']} bought a {state['thing']}, and {state['other']} wants it."


def _long(state: dict[str, str]) -> str:
    return (
        f"{state['person']} bought an old {state['thing']} at the {state['place']} on "
        f"{state['day']} and repaired it with a {state['helper']}."
    )
