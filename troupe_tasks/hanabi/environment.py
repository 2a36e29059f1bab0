"""Judges one turn of Hanabi on its own copy of the state.

The team is paid a share of the perfect score for each point, and pays all of it back when the last
life is lost: the sum over a game is its official score. Local terms telescope or are paid once a
card, so there is nothing to farm. An illegal or unreadable answer costs a life and the turn.
"""

from collections.abc import Mapping
from random import Random
from typing import Literal

from troupe.errors import InvalidArgumentError
from troupe.tasks.agents import known_agent
from troupe.tasks.family import Observation, Task, Transition
from troupe_tasks.hanabi import game, text
from troupe_tasks.hanabi import state as states
from troupe_tasks.hanabi.cards import SEATS, Rules, split_cards
from troupe_tasks.hanabi.game import Move
from troupe_tasks.hanabi.player import scripted_move
from troupe_tasks.hanabi.state import State
from troupe_tasks.hanabi.view import view

Partners = Literal["none", "random", "scripted"]

RETURN_BOUND = 1.0
"""The share of a perfect score."""


class HanabiEnvironment:
    """The pure function of Hanabi: see ``troupe.tasks.family.Environment``."""

    def __init__(self, rules: Rules, target: int, partners: Partners, style: text.Style) -> None:
        self._rules = rules
        self._target = target
        self._partners: Partners = partners
        self._style: text.Style = style

    def reset(self, task: Task) -> bytes:
        """The deal. ``payload``: the deck, then a salt, e.g. ``r1b3...:7``."""
        deck, salt = task.payload.decode().split(":")
        return states.encode(states.first_state(self._rules, split_cards(deck), int(salt)))

    def observe(self, state: bytes, agent: str) -> Observation:
        """What ``agent`` sees; empty while it is not its turn."""
        decoded = states.decode(state)
        if not self._is_to_move(decoded, agent):
            return ()
        return text.observation(view(self._rules, decoded, decoded.seat), self._style)

    def step(self, state: bytes, agent: str, action: str) -> Transition:
        """Play the turn in ``action``, and those of scripted partners up to the next own one.

        Out of turn, or after the end, an action changes nothing and earns nothing.
        """
        before = states.decode(state)
        if not self._is_to_move(before, agent):
            return self._transition(before, 0.0, {})
        move, is_well_formed = text.read_move(action)
        is_legal = move is not None and game.is_legal(self._rules, before, move)
        moved = game.moved(self._rules, before, move)
        after = self._partnered(moved)
        gained = (game.score(after) - game.score(before)) / self._rules.max_score
        terms = {
            "format": 0.0 if is_well_formed else -1.0,
            "legal": 0.0 if is_legal else -1.0,
            "life": float(moved.lives - before.lives),
            "hint": _hint_reward(self._rules, before, move) if is_legal else 0.0,
            "reach": self._reach(moved) - self._reach(before),
        }
        if self._partners == "none":
            others = (seat for seat in self._rules.seats if seat != agent)
            terms.update({f"{seat}/shared": gained for seat in others if gained})
        return self._transition(after, gained, terms)

    def _partnered(self, state: State) -> State:
        """``state`` after the scripted partners' turns, if there are any."""
        if self._partners == "none":
            return state
        while state.seat != 0 and not game.is_over(self._rules, state):
            state = game.moved(self._rules, state, self._partner_move(state))
        return state

    def _partner_move(self, state: State) -> Move:
        rng = Random(f"{state.salt}/{len(state.deck)}/{state.hints}/{state.seat}")
        if self._partners == "random":
            return rng.choice(game.legal_moves(self._rules, state))
        return scripted_move(view(self._rules, state, state.seat), rng)

    def _reach(self, state: State) -> float:
        return game.attainable(self._rules, state) / self._rules.max_score

    def _is_to_move(self, state: State, agent: str) -> bool:
        seats = self._rules.seats
        known_agent(agent, seats, task=f"Hanabi with players = {len(seats)}")
        if agent != seats[0] and self._partners != "none":
            raise InvalidArgumentError(
                f"With partners = {self._partners} the environment plays {agent} itself; take it "
                "out of the job's agents, or set partners to none."
            )
        return seats[state.seat] == agent and not game.is_over(self._rules, state)

    def _transition(
        self, after: State, team_reward: float, terms: Mapping[str, float]
    ) -> Transition:
        is_done = game.is_over(self._rules, after)
        score = game.score(after)
        info = {
            "result": f"{score} points" if is_done else "open",
            "score": score,
            "attainable": game.attainable(self._rules, after),
            "lives": after.lives,
            "hints": after.hints,
            "deck": len(after.deck),
            "piles": dict(zip(self._rules.colours, after.piles, strict=True)),
            "events": [text.event_text(event) for event in after.events],
            "to_move": None if is_done else SEATS[after.seat],
        }
        return Transition(
            states.encode(after),
            team_reward,
            terms,
            done=is_done,
            success=is_done and score >= self._target,
            info=info,
        )


def _hint_reward(rules: Rules, before: State, move: Move | None) -> float:
    """Share of the perfect score that a hint newly points at: cards that are playable now.

    A card is pointed at for the first time once, so a game pays at most one a card of the deck.
    """
    if move is None or move.kind != "hint":
        return 0.0
    hand = before.hands[move.target]
    new = {
        hand[slot].card
        for slot in game.touched(hand, move.clue)
        if not hand[slot].note.is_touched and game.is_playable(rules, before.piles, hand[slot].card)
    }
    return len(new) / rules.max_score
