"""A scripted player of a simple convention: a hint says "play the newest card it is about".

The convention, known to all seats that follow it: of the cards that a hint is about, the newest
one that can be playable (by the piles and the notes alone) is playable now. A hint whose cards
can't be playable only saves them. It is honest: it decides on a view, never on hidden cards.
"""

from collections.abc import Iterable
from random import Random

from troupe_tasks.hanabi.game import Move, hinted, touched
from troupe_tasks.hanabi.state import Event, Hand, Note
from troupe_tasks.hanabi.view import View


def scripted_move(view: View, rng: Random) -> Move:
    """Play what is known or hinted to be playable, else tell, else discard the oldest."""
    slot = _hinted_slot(view)
    if slot is None:
        slot = _certain_slot(view)
    if slot is not None:
        return Move("play", slot)
    if view.hints > 0 and (move := _best_hint(view, rng)) is not None:
        return move
    if view.hints < view.rules.max_hints:
        return Move("discard", _spare_slot(view))
    return _harmless_hint(view, rng)


def _hinted_slot(view: View) -> int | None:
    """The slot that a hint since the own last turn says to play."""
    hints = [e for e in view.events if e.kind == "hint" and e.target == view.seat]
    for event in reversed(hints):
        if (slot := _focus(view, view.own, event.slots)) is not None:
            return slot
    return None


def _focus(view: View, notes: Iterable[Note], slots: Iterable[int]) -> int | None:
    """The newest slot of a hint whose card can be playable, as everyone sees it."""
    note_of = list(notes)
    able = [s for s in slots if any(view.is_playable(c) for c in view.possible(note_of[s]))]
    return max(able, default=None)


def _certain_slot(view: View) -> int | None:
    """A slot whose card must be playable; the lowest rank first."""
    visible = view.visible()
    sure = [
        (min(card[1] for card in cards), slot)
        for slot, note in enumerate(view.own)
        if (cards := view.possible(note, visible)) and all(view.is_playable(c) for c in cards)
    ]
    return min(sure)[1] if sure else None


def _best_hint(view: View, rng: Random) -> Move | None:
    """A hint that makes its target play a card that nobody else is about to play."""
    promised = _promised(view)
    hints: list[tuple[float, float, Move]] = []
    for distance, (target, hand) in enumerate(view.others.items()):
        if _will_play(view, target, hand):
            continue
        for move, slot in _hints(view, target, hand):
            if slot is None or not view.is_playable(hand[slot].card):
                continue
            if hand[slot].card in promised:
                continue
            hints.append((_worth(view, hand, move.clue) - distance, rng.random(), move))
    return max(hints, key=lambda entry: entry[:2])[2] if hints else None


def _hints(view: View, target: int, hand: Hand) -> list[tuple[Move, int | None]]:
    """Every legal hint to ``target`` with the slot that it tells to play."""
    hints: list[tuple[Move, int | None]] = []
    for clue in view.rules.colours + view.rules.ranks:
        if slots := touched(hand, clue):
            notes = [held.note for held in hinted(hand, clue)]
            hints.append((Move("hint", target=target, clue=clue), _focus(view, notes, slots)))
    return hints


def _worth(view: View, hand: Hand, clue: str) -> float:
    """Newly touched useful cards count for a hint, useless ones against it."""
    new = [hand[s].card for s in touched(hand, clue) if not hand[s].note.is_touched]
    useless = sum(view.is_useless(card) for card in new)
    return 0.1 * (len(new) - useless) - 0.1 * useless


def _will_play(view: View, target: int, hand: Hand) -> bool:
    """Whether ``target`` has something to play already."""
    told_it = [e for e in _since_turn_of(view, target) if e.kind == "hint" and e.target == target]
    notes = [held.note for held in hand]
    if any(_focus(view, notes, event.slots) is not None for event in told_it):
        return True
    return any(all(view.is_playable(c) for c in view.possible(note)) for note in notes)


def _since_turn_of(view: View, seat: int) -> list[Event]:
    last = max((i for i, e in enumerate(view.events) if e.seat == seat), default=-1)
    return list(view.events[last + 1 :])


def _promised(view: View) -> set[str]:
    """Playable cards that a hint was about already: their holders are expected to play them."""
    return {
        held.card
        for hand in view.others.values()
        for held in hand
        if held.note.is_touched and view.is_playable(held.card)
    }


def _spare_slot(view: View) -> int:
    """The slot to discard: known to be useless, else the oldest that no hint was about."""
    visible = view.visible()
    for slot, note in enumerate(view.own):
        cards = view.possible(note, visible)
        if cards and all(view.is_useless(card) for card in cards):
            return slot
    untouched = [slot for slot, note in enumerate(view.own) if not note.is_touched]
    return untouched[0] if untouched else 0


def _harmless_hint(view: View, rng: Random) -> Move:
    """A hint when there is nothing to say and no discard is allowed: one that tells no play."""
    hints = [h for target, hand in view.others.items() for h in _hints(view, target, hand)]
    quiet = [move for move, slot in hints if slot is None]
    return rng.choice(quiet or [move for move, _ in hints] or [Move("play", 0)])
