"""Hanabi as a task family: its parameters, its tasks and its demonstrations."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from troupe.tasks.family import Split, Task
from troupe.tasks.splits import DrawnTaskset, split_of_key
from troupe_tasks.hanabi import game, text
from troupe_tasks.hanabi import state as states
from troupe_tasks.hanabi.cards import COLOURS, RANKS, SEATS, Rules, relabelled, split_cards
from troupe_tasks.hanabi.environment import RETURN_BOUND, HanabiEnvironment, Partners
from troupe_tasks.hanabi.player import scripted_move
from troupe_tasks.hanabi.view import view

_LOCAL_TERMS = {"format": 0.1, "legal": 0.2, "life": 0.2, "hint": 0.5, "reach": 0.5, "shared": 1.0}


class HanabiParams(BaseModel):
    """Which variant. The defaults are the full game for two."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, description="Seed of the decks.")
    players: int = Field(default=2, ge=2, le=5, description="Seats.")
    colours: int = Field(default=5, ge=1, le=5, description="Colours, of r y g w b.")
    ranks: int = Field(default=5, ge=2, le=5, description="Ranks of each colour.")
    hand_size: int | None = Field(
        default=None, ge=1, le=5, description="Cards a hand; 5 for two or three players, else 4."
    )
    hints: int = Field(default=8, ge=1, le=20, description="Hint tokens, at most and at first.")
    lives: int = Field(default=3, ge=1, le=10, description="Lives at first.")
    target: int | None = Field(
        default=None, ge=1, description="Score that is success; 60 % of a perfect one, rounded up."
    )
    partners: Partners = Field(
        default="none",
        description="none: every seat is an agent; random (uniform over legal moves) or scripted "
        "(the conventional player): the environment plays all seats but player_1.",
    )
    style: text.Style = Field(
        default="compact", description="compact: one line; verbose: with rules."
    )

    @model_validator(mode="after")
    def _fits(self) -> "HanabiParams":
        rules = self.rules()
        if rules.num_players * rules.hand_size > rules.num_cards:
            raise ValueError(
                f"{rules.num_players} hands of {rules.hand_size} need more than the "
                f"{rules.num_cards} cards of {self.colours} colours with {self.ranks} ranks; "
                "set a smaller hand_size"
            )
        if self.target is not None and self.target > rules.max_score:
            raise ValueError(f"target {self.target} is above the best score {rules.max_score}")
        return self

    def rules(self) -> Rules:
        """The sizes of the variant."""
        return Rules(
            num_players=self.players,
            colours=COLOURS[: self.colours],
            ranks=RANKS[: self.ranks],
            hand_size=self.hand_size or (5 if self.players <= 3 else 4),
            max_hints=self.hints,
            max_lives=self.lives,
        )


class Hanabi:
    """Seats in turn order share one score; each sees every hand but its own.

    With scripted ``partners`` the only agent is ``player_1``.

    Example: ``Hanabi(HanabiParams(players=3)).taskset().task("train", 0)``.
    """

    name: ClassVar[str] = "hanabi"
    agents: ClassVar[tuple[str, ...]] = SEATS
    Params: ClassVar[type[BaseModel]] = HanabiParams
    local_terms: ClassVar[Mapping[str, Mapping[str, float]]] = dict.fromkeys(SEATS, _LOCAL_TERMS)
    return_bound: ClassVar[float] = RETURN_BOUND
    usual_workflow: ClassVar[Mapping[str, Any]] = {
        "kind": "self_play",
        "order": list(SEATS),
        "max_turns": 60,
    }

    def __init__(self, params: BaseModel) -> None:
        self._params = HanabiParams.model_validate(params.model_dump())
        self._rules = self._params.rules()
        is_alone = self._params.partners != "none"
        seats = self._rules.seats[:1] if is_alone else self._rules.seats
        # The seats depend on the parameters: what an instance declares hides the class's.
        vars(self).update(
            agents=seats,
            local_terms=dict.fromkeys(seats, _LOCAL_TERMS),
            usual_workflow={
                "kind": "self_play",
                "order": list(seats),
                "max_turns": _max_turns(self._rules),
            },
        )

    def taskset(self) -> DrawnTaskset:
        """Decks without end in each split."""
        hint = f"use more cards than {self._params} has"
        return DrawnTaskset(self.name, self._params.seed, self._draw, hint=hint)

    def split_key(self, task: Task) -> str:
        """The deck, however its colours are named."""
        return relabelled(split_cards(task.payload.decode().partition(":")[0]))

    def _draw(self, rng: Random, split: Split) -> bytes | None:
        deck = self._rules.shuffled(rng)
        if split_of(deck) != split:
            return None
        return f"{''.join(deck)}:{rng.getrandbits(32)}".encode()

    def environment(self) -> HanabiEnvironment:
        """The family's judge."""
        target = self._params.target or (3 * self._rules.max_score + 4) // 5
        return HanabiEnvironment(self._rules, target, self._params.partners, self._params.style)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The scripted player's move; it decides on what ``agent`` sees."""
        seat = SEATS.index(agent)
        return text.answer(scripted_move(view(self._rules, states.decode(state), seat), rng))

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """Any legal move, uniformly."""
        return text.answer(rng.choice(game.legal_moves(self._rules, states.decode(state))))

    def vocabulary(self) -> Sequence[str]:
        """Every word of the compact style."""
        return text.words(self._rules)


def _max_turns(rules: Rules) -> int:
    """Turns of one seat in the longest game.

    Each card of the deck is drawn once, each hint needs a token, and tokens come from the start,
    discards and complete piles; then there are the faults and everyone's last turn.
    """
    num_drawn = rules.num_cards - rules.num_players * rules.hand_size
    num_hints = rules.max_hints + num_drawn + len(rules.colours)
    num_turns = num_drawn + num_hints + rules.max_lives + rules.num_players
    return -(-num_turns // rules.num_players)


def split_of(deck: Sequence[str]) -> Split:
    """The one split that owns ``deck``, however its colours are named."""
    return split_of_key(relabelled(deck))
