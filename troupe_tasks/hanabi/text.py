"""The prompts of Hanabi: what a seat reads when it is to move, and how its answer is parsed.

Two styles say the same facts. ``compact`` is one line that a tiny made-here model can learn;
``verbose`` explains the rules to a general instruction-tuned model. Both are made from a view, so
a hidden card can't get into a prompt.
"""

import re
from typing import Literal

from troupe.tasks.family import Message, Observation
from troupe_tasks.hanabi.cards import COLOUR_NAMES, COLOURS, RANKS, SEATS, Rules
from troupe_tasks.hanabi.game import Move
from troupe_tasks.hanabi.prose import rules_text, verbose
from troupe_tasks.hanabi.state import Event, Note
from troupe_tasks.hanabi.view import View

Style = Literal["compact", "verbose"]

_COLOUR = "|".join([*COLOUR_NAMES.values(), *COLOURS])
_ANSWER = re.compile(
    r"\b(?:(?P<kind>play|discard)\s+(?P<slot>[1-5])"
    rf"|hint\s+(?P<target>player_[1-5])\s+(?P<clue>{_COLOUR}|[1-5]))\b",
    re.IGNORECASE,
)
_LETTER_OF = {name: letter for letter, name in COLOUR_NAMES.items()}


def read_move(text: str) -> tuple[Move | None, bool]:
    """The last move named in ``text``, and whether nothing follows it.

    Reasoning may stand before it. Never fails: without a move it is None. Slots count from 1 in
    text and from 0 in moves.

    Example: ``read_move("hint player_2 red") == (Move("hint", target=1, clue="r"), True)``.
    """
    matches = list(_ANSWER.finditer(text))
    if not matches:
        return None, False
    match = matches[-1]
    ends_there = not text[match.end() :].strip(" \t\r\n.)]")
    if match["kind"]:
        slot = int(match["slot"]) - 1
        is_play = match["kind"].lower() == "play"
        return Move("play" if is_play else "discard", slot), ends_there
    clue = match["clue"].lower()
    target = SEATS.index(match["target"].lower())
    return Move("hint", target=target, clue=_LETTER_OF.get(clue, clue)), ends_there


def answer(move: Move) -> str:
    """The text that ``read_move`` reads as ``move``."""
    if move.kind == "hint":
        return f"hint {SEATS[move.target]} {move.clue}"
    return f"{move.kind} {move.slot + 1}"


def observation(view: View, style: Style) -> Observation:
    """The prompt of the seat that ``view`` is of."""
    if style == "compact":
        return (Message("user", _compact(view)),)
    return Message("system", rules_text(view.rules)), Message("user", verbose(view))


def event_text(event: Event) -> str:
    """One turn in the words of the compact style, as a bystander reads it."""
    return " ".join(_event(event, event.target))


def words(rules: Rules) -> list[str]:
    """Every word that the compact style can utter."""
    fixed = ["lives", "hints", "deck", "turns", "piles", "gone", "you", "no", "last"]
    verbs = ["play", "misplay", "discard", "hint", "fault"]
    numbers = [str(n) for n in range(max(rules.num_cards, rules.max_hints, rules.max_lives) + 1)]
    cards = [c + r for c in (*rules.colours, "?") for r in ("0", *RANKS[: len(rules.ranks)], "?")]
    return [*fixed, *verbs, *rules.seats, *rules.colours, *numbers, *cards]


def _compact(view: View) -> str:
    rules = view.rules
    parts = ["lives", str(view.lives), "hints", str(view.hints), "deck", str(view.deck_size)]
    if view.turns_left is not None:
        parts += ["turns", str(view.turns_left)]
    parts += ["piles", *(f"{c}{n}" for c, n in zip(rules.colours, view.piles, strict=True))]
    if view.discards:
        parts += ["gone", *sorted(view.discards)]
    for seat, hand in view.others.items():
        parts.append(SEATS[seat])
        for slot, held in enumerate(hand, start=1):
            parts += [str(slot), held.card, *_note(held.note, rules)]
    if view.events:
        parts.append("last")
        for event in view.events:
            parts += _event(event, view.seat)
    parts.append("you")
    for slot, note in enumerate(view.own, start=1):
        parts += [str(slot), *_note(note, rules)]
    return " ".join(parts)


def _note(note: Note, rules: Rules) -> list[str]:
    """``r?`` a red card of unknown rank; ``?? no y 2`` neither yellow nor a two."""
    colour = note.colours if len(note.colours) == 1 else "?"
    rank = note.ranks if len(note.ranks) == 1 else "?"
    excluded = [c for c in rules.colours if c not in note.colours] if colour == "?" else []
    excluded += [r for r in rules.ranks if r not in note.ranks] if rank == "?" else []
    return [colour + rank, *(["no", *excluded] if excluded else [])]


def _event(event: Event, reader: int) -> list[str]:
    parts = [SEATS[event.seat], event.kind]
    if event.kind != "hint":
        return [*parts, event.card] if event.card else parts
    parts += [SEATS[event.target], event.clue]
    # Another seat may have moved its cards since; the reader's own have not moved.
    return [*parts, *(str(s + 1) for s in event.slots)] if event.target == reader else parts
