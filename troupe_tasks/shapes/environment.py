"""Judges one line of the answerer or one message of the seer on its own copy of the state.

The seer is paid for true words at once: what the answerer makes of them is the answerer's. The
team is paid for the right answer alone, and there is one try.
"""

from dataclasses import replace

from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.guided_walk.text import read_message
from troupe_tasks.shapes import image, text
from troupe_tasks.shapes import state as states
from troupe_tasks.shapes.questions import true_answer
from troupe_tasks.shapes.state import MAX_LOOKUPS, Lookup, ShapesState

RETURN_BOUND = 1.0
"""The right answer is paid 1, once."""


class ShapesEnvironment:
    """The pure function of shapes: see ``troupe.tasks.family.Environment``."""

    def __init__(
        self,
        agents: tuple[str, ...],
        style: text.Style,
        message_words: int,
        image_cell_px: int | None,
    ) -> None:
        self._agents = agents
        self._style: text.Style = style
        self._message_words = message_words
        self._image_cell_px = image_cell_px

    def reset(self, task: Task) -> bytes:
        """The first state: nothing asked."""
        return states.encode_state(states.first_state(task.payload))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees; empty when the episode is over."""
        now = states.decode_state(state)
        known_agent(agent, self._agents, task="Shapes")
        if now.end:
            return ()
        cell_px = self._image_cell_px
        told = text.observation(
            now, agent, self._style, self._message_words, in_words=cell_px is None
        )
        if cell_px is None or agent == text.ANSWERER:
            return told
        return image.observation(told, now.plane, cell_px)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Take down an ask or a message, or judge the answer."""
        before = states.decode_state(state)
        if known_agent(agent, self._agents, task="Shapes") == text.SEER:
            return _told(before, read_message(action, self._message_words))
        return _asked(before, agent, text.read_answerer(action))


def _told(before: ShapesState, message: str) -> Transition:
    """The message as the answerer hears it.

    ``truth``: what of it is true less what is not, as a share of all that was asked for; 1 for
    saying that there is none, 0 where nothing was asked in words of the scripted language.
    """
    if before.end:
        return _transition(before, 0.0, {"truth": 0.0})
    last = before.lookups[-1] if before.lookups else Lookup("")
    is_first = last.heard is None
    lookups = (*before.lookups[:-1], replace(last, heard=message))
    truth = _truth(before, last.asked, message) if is_first else 0.0
    return _transition(replace(before, lookups=lookups), 0.0, {"truth": truth})


def _truth(state: ShapesState, ask: str, message: str) -> float:
    true_message = text.places(state.plane, ask)
    if true_message is None:
        return 0.0
    if true_message == text.NONE:
        return float(message == text.NONE)
    true_facts, facts = text.facts(ask, true_message), text.facts(ask, message)
    share = (len(facts & true_facts) - len(facts - true_facts)) / len(true_facts)
    return max(-1.0, share)


def _asked(before: ShapesState, agent: str, said: text.Said) -> Transition:
    """An answer ends the episode; any other words go to the seer.

    ``format``: -1 for neither an answer nor a short ask. ``ask``: the share of what the question
    needs that is asked for, for the first time.
    """
    is_team = agent == text.ANSWERER
    terms = {"format": 0.0, **({"ask": 0.0} if is_team else {})}
    if before.end:
        return _transition(before, 0.0, terms)
    if said.answer is not None:
        is_right = said.answer == true_answer(before.question, before.plane)
        after = replace(before, end="right" if is_right else "wrong")
        return _transition(after, float(is_right), terms)
    terms["format"] = 0.0 if said.is_well_formed and is_team else -1.0
    if not is_team:
        return _transition(before, 0.0, terms)
    needs = before.question.needs
    paid = before.paid
    if said.ask in needs and said.ask not in paid:
        terms["ask"] = 1 / len(needs)
        paid = (*paid, said.ask)
    lookups = (*before.lookups, Lookup(said.ask))[-MAX_LOOKUPS:]
    return _transition(replace(before, lookups=lookups, paid=paid), 0.0, terms)


def _transition(after: ShapesState, team_reward: float, terms: dict[str, float]) -> Transition:
    info = {
        "plane": text.plane_words(after.plane),
        "question": after.question.sentence,
        "right_answer": true_answer(after.question, after.plane),
        "lookups": [[lookup.asked, lookup.heard] for lookup in after.lookups],
        **({"outcome": after.end} if after.end else {}),
    }
    return Transition(
        states.encode_state(after),
        team_reward,
        terms,
        done=after.end is not None,
        success=after.end == "right",
        info=info,
    )
