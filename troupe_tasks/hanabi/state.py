"""The state of a game of Hanabi between moves, and its encoding as compact JSON bytes.

The state holds every card; ``view.py`` is the only way from it to what a seat may know.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from troupe_tasks.hanabi.cards import Rules, split_cards

EventKind = Literal["play", "misplay", "discard", "hint", "fault"]


@dataclass(frozen=True, slots=True)
class Note:
    """What everyone knows that the holder knows of one card, from hints alone.

    ``colours`` and ``ranks`` are those still possible; ``is_touched`` says that a hint was about
    the card.

    Example: ``Note("r", "12345", True)`` after a hint of red.
    """

    colours: str
    ranks: str
    is_touched: bool = False

    def hinted(self, clue: str, *, is_about: bool) -> "Note":
        """The note after a hint of ``clue``, a colour letter or a rank."""

        def keep(possible: str) -> str:
            return clue if is_about else possible.replace(clue, "")

        if clue.isdigit():
            return Note(self.colours, keep(self.ranks), self.is_touched or is_about)
        return Note(keep(self.colours), self.ranks, self.is_touched or is_about)


@dataclass(frozen=True, slots=True)
class Held:
    """One card of a hand."""

    card: str
    note: Note


Hand = tuple[Held, ...]
"""Oldest card first; a drawn card is put last."""


@dataclass(frozen=True, slots=True)
class Event:
    """One turn as all saw it. ``slots`` of a hint count from 0 in the target's hand then."""

    seat: int
    kind: EventKind
    card: str = ""
    target: int = -1
    clue: str = ""
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """One moment of a game.

    ``piles`` are the heights in the order of the variant's colours; ``turns_left`` counts down
    once the deck is empty; ``events`` are the last turns, one for each seat at most; ``salt``
    seeds scripted partners.
    """

    deck: tuple[str, ...]
    hands: tuple[Hand, ...]
    piles: tuple[int, ...]
    discards: tuple[str, ...]
    hints: int
    lives: int
    seat: int
    turns_left: int | None
    events: tuple[Event, ...]
    salt: int

    @property
    def points(self) -> int:
        """Cards on the piles."""
        return sum(self.piles)


def first_state(rules: Rules, deck: tuple[str, ...], salt: int) -> State:
    """The deal: hands from the front of ``deck``, player_1 to move."""
    blank = Note(rules.colours, rules.ranks)
    size = rules.hand_size
    hands = tuple(
        tuple(Held(card, blank) for card in deck[i * size : (i + 1) * size])
        for i in range(rules.num_players)
    )
    left = deck[rules.num_players * size :]
    return State(
        deck=left,
        hands=hands,
        piles=(0,) * len(rules.colours),
        discards=(),
        hints=rules.max_hints,
        lives=rules.max_lives,
        seat=0,
        turns_left=None if left else rules.num_players,
        events=(),
        salt=salt,
    )


def encode(state: State) -> bytes:
    """Opaque state bytes; ``decode`` is the inverse."""
    value = {
        "deck": "".join(state.deck),
        "hands": [[_held(held) for held in hand] for hand in state.hands],
        "piles": state.piles,
        "discards": "".join(state.discards),
        "hints": state.hints,
        "lives": state.lives,
        "seat": state.seat,
        "turns_left": state.turns_left,
        "events": [[e.seat, e.kind, e.card, e.target, e.clue, e.slots] for e in state.events],
        "salt": state.salt,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes) -> State:
    """The state that ``encode`` wrote."""
    raw: dict[str, Any] = json.loads(data)
    raw["deck"] = split_cards(raw["deck"])
    raw["discards"] = split_cards(raw["discards"])
    raw["piles"] = tuple(raw["piles"])
    raw["hands"] = tuple(
        tuple(Held(card, Note(c, r, bool(touched))) for card, c, r, touched in hand)
        for hand in raw["hands"]
    )
    raw["events"] = tuple(Event(*event[:5], slots=tuple(event[5])) for event in raw["events"])
    return State(**raw)


def _held(held: Held) -> list[str | int]:
    note = held.note
    return [held.card, note.colours, note.ranks, int(note.is_touched)]
