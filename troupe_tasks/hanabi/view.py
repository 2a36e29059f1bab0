"""What one seat may know: everything but its own cards and the deck.

Prompts and scripted players are made from a view alone, so neither can leak a hidden card.
"""

from collections import Counter
from dataclasses import dataclass

from troupe_tasks.hanabi.cards import Rules
from troupe_tasks.hanabi.game import is_playable
from troupe_tasks.hanabi.state import Event, Hand, Note, State


@dataclass(frozen=True, slots=True)
class View:
    """The table as ``seat`` sees it.

    ``own`` are the notes of its own hand; ``others`` maps the other seats, next to act first, to
    their hands; ``events`` are the turns since its own last one, oldest first.
    """

    rules: Rules
    seat: int
    own: tuple[Note, ...]
    others: dict[int, Hand]
    piles: tuple[int, ...]
    discards: tuple[str, ...]
    hints: int
    lives: int
    deck_size: int
    turns_left: int | None
    events: tuple[Event, ...]

    def is_playable(self, card: str) -> bool:
        """Whether ``card`` is the next of its pile."""
        return is_playable(self.rules, self.piles, card)

    def is_useless(self, card: str) -> bool:
        """Whether ``card`` can never be played: it lies there, or what it needs is gone."""
        height = self.piles[self.rules.colours.index(card[0])]
        if int(card[1]) <= height:
            return True
        gone = Counter(self.discards)
        below = [f"{card[0]}{rank}" for rank in range(height + 1, int(card[1]))]
        return any(gone[need] == self.rules.counts[need] for need in below)

    def is_critical(self, card: str) -> bool:
        """Whether ``card`` is useful and all its other copies are gone."""
        left = self.rules.counts[card] - self.discards.count(card)
        return left == 1 and not self.is_useless(card)

    def possible(self, note: Note, visible: Counter[str] | None = None) -> list[str]:
        """Cards that ``note`` allows and that are not all in ``visible``."""
        counts = self.rules.counts
        cards = [colour + rank for colour in note.colours for rank in note.ranks]
        return [c for c in cards if visible is None or visible[c] < counts[c]]

    def visible(self) -> Counter[str]:
        """Every card that the seat sees, with its number of copies."""
        cards = Counter(self.discards)
        for colour, height in zip(self.rules.colours, self.piles, strict=True):
            cards.update(f"{colour}{rank}" for rank in range(1, height + 1))
        for hand in self.others.values():
            cards.update(held.card for held in hand)
        return cards


def view(rules: Rules, state: State, seat: int) -> View:
    """What ``seat`` sees in ``state``."""
    order = [(seat + i) % rules.num_players for i in range(1, rules.num_players)]
    past = [event.seat for event in state.events]
    own_last = max((i for i, actor in enumerate(past) if actor == seat), default=-1)
    return View(
        rules=rules,
        seat=seat,
        own=tuple(held.note for held in state.hands[seat]),
        others={other: state.hands[other] for other in order},
        piles=state.piles,
        discards=state.discards,
        hints=state.hints,
        lives=state.lives,
        deck_size=len(state.deck),
        turns_left=state.turns_left,
        events=state.events[own_last + 1 :],
    )
