"""The cards of Hanabi and the sizes of a variant. Owns counting; knows no state.

A card is its colour letter and its rank: ``r1`` is the red one. The full game has five colours
with ranks 1 to 5: three ones, two each of the middle ranks, one five.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

COLOURS = "rygwb"
COLOUR_NAMES = {"r": "red", "y": "yellow", "g": "green", "w": "white", "b": "blue"}
RANKS = "12345"
SEATS = ("player_1", "player_2", "player_3", "player_4", "player_5")


@dataclass(frozen=True)
class Rules:
    """The sizes of one variant.

    Example: ``Rules(2, "rygwb", "12345", 5, 8, 3)`` is the full game for two.
    """

    num_players: int
    colours: str
    ranks: str
    hand_size: int
    max_hints: int
    max_lives: int

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats in turn order."""
        return SEATS[: self.num_players]

    @property
    def max_score(self) -> int:
        """Points of a perfect game: one a card of every pile."""
        return len(self.colours) * len(self.ranks)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of copies of each card."""
        return {
            colour + rank: 3 if rank == "1" else 1 if rank == self.ranks[-1] else 2
            for colour in self.colours
            for rank in self.ranks
        }

    @property
    def num_cards(self) -> int:
        """Cards in the game."""
        return sum(self.counts.values())

    def shuffled(self, rng: Random) -> tuple[str, ...]:
        """All cards in random order; the first is dealt first."""
        cards = [card for card, count in self.counts.items() for _ in range(count)]
        rng.shuffle(cards)
        return tuple(cards)


def split_cards(text: str) -> tuple[str, ...]:
    """``"r1b3"`` as ``("r1", "b3")``."""
    return tuple(text[i : i + 2] for i in range(0, len(text), 2))


def relabelled(deck: Sequence[str]) -> str:
    """The deck with colours renamed in the order in which they come: one name for all namings."""
    colours = dict.fromkeys(card[0] for card in deck)
    names = dict(zip(colours, COLOURS, strict=False))
    return "".join(names[card[0]] + card[1] for card in deck)
