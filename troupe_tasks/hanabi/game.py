"""The moves of Hanabi: what is legal and what each does. Pure; owns no rewards and no text."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from troupe_tasks.hanabi.cards import Rules
from troupe_tasks.hanabi.state import Event, Hand, Held, Note, State


@dataclass(frozen=True, slots=True)
class Move:
    """One move. ``slot`` counts from 0; ``target`` is a seat's index; ``clue`` a colour or rank.

    Example: ``Move("hint", target=1, clue="r")``.
    """

    kind: Literal["play", "discard", "hint"]
    slot: int = -1
    target: int = -1
    clue: str = ""


def is_over(rules: Rules, state: State) -> bool:
    """No lives, no turns left, or every pile complete."""
    return state.lives == 0 or state.turns_left == 0 or state.points == rules.max_score


def score(state: State) -> int:
    """Points; a game that lost its last life scores nothing."""
    return state.points if state.lives else 0


def is_playable(rules: Rules, piles: tuple[int, ...], card: str) -> bool:
    """Whether ``card`` is the next of its pile."""
    return int(card[1]) == piles[rules.colours.index(card[0])] + 1


def attainable(rules: Rules, state: State) -> int:
    """The best score that the discards still allow."""
    if state.lives == 0:
        return 0
    gone = Counter(state.discards)
    total = 0
    for colour, height in zip(rules.colours, state.piles, strict=True):
        top = height
        while top < len(rules.ranks) and gone[card := f"{colour}{top + 1}"] < rules.counts[card]:
            top += 1
        total += top
    return total


def touched(hand: Hand, clue: str) -> tuple[int, ...]:
    """Slots of the cards that a hint of ``clue`` is about."""
    return tuple(slot for slot, held in enumerate(hand) if clue in held.card)


def legal_moves(rules: Rules, state: State) -> list[Move]:
    """Every legal move of the seat that is to move."""
    slots, seats = range(len(state.hands[state.seat])), range(rules.num_players)
    clues = rules.colours + rules.ranks
    moves = [Move("play", slot) for slot in slots] + [Move("discard", slot) for slot in slots]
    moves += [Move("hint", target=target, clue=clue) for target in seats for clue in clues]
    return [move for move in moves if is_legal(rules, state, move)]


def is_legal(rules: Rules, state: State, move: Move) -> bool:
    """Whether the seat that is to move may do ``move``."""
    if move.kind != "hint":
        has_card = 0 <= move.slot < len(state.hands[state.seat])
        return has_card and (move.kind == "play" or state.hints < rules.max_hints)
    is_other = 0 <= move.target < rules.num_players and move.target != state.seat
    if not is_other or state.hints == 0 or move.clue not in (*rules.colours, *rules.ranks):
        return False
    return bool(touched(state.hands[move.target], move.clue))


def moved(rules: Rules, state: State, move: Move | None) -> State:
    """The state after a turn. An illegal move, or none, costs a life and nothing else happens."""
    if move is None or not is_legal(rules, state, move):
        fault = replace(state, lives=state.lives - 1)
        return _next(rules, state, fault, Event(state.seat, "fault"))
    if move.kind == "hint":
        return _hinted(rules, state, move)
    return _played(rules, state, move) if move.kind == "play" else _discarded(rules, state, move)


def _played(rules: Rules, state: State, move: Move) -> State:
    card, drawn = _drawn(rules, state, move.slot)
    if not is_playable(rules, state.piles, card):
        after = replace(drawn, lives=state.lives - 1, discards=(*state.discards, card))
        return _next(rules, state, after, Event(state.seat, "misplay", card))
    colour = rules.colours.index(card[0])
    piles = tuple(height + (i == colour) for i, height in enumerate(state.piles))
    is_bonus = card[1] == rules.ranks[-1] and state.hints < rules.max_hints
    after = replace(drawn, piles=piles, hints=state.hints + is_bonus)
    return _next(rules, state, after, Event(state.seat, "play", card))


def _discarded(rules: Rules, state: State, move: Move) -> State:
    card, drawn = _drawn(rules, state, move.slot)
    after = replace(drawn, hints=state.hints + 1, discards=(*state.discards, card))
    return _next(rules, state, after, Event(state.seat, "discard", card))


def _hinted(rules: Rules, state: State, move: Move) -> State:
    hand = hinted(state.hands[move.target], move.clue)
    hands = _with_hand(state, move.target, hand)
    slots = touched(hand, move.clue)
    event = Event(state.seat, "hint", target=move.target, clue=move.clue, slots=slots)
    return _next(rules, state, replace(state, hands=hands, hints=state.hints - 1), event)


def hinted(hand: Hand, clue: str) -> Hand:
    """``hand`` with notes after a hint of ``clue``."""
    return tuple(Held(h.card, h.note.hinted(clue, is_about=clue in h.card)) for h in hand)


def _drawn(rules: Rules, state: State, slot: int) -> tuple[str, State]:
    """The card that leaves the hand, and the state with the next card of the deck in it."""
    hand = state.hands[state.seat]
    held = (*hand[:slot], *hand[slot + 1 :])
    if state.deck:
        held = (*held, Held(state.deck[0], Note(rules.colours, rules.ranks)))
    hands = _with_hand(state, state.seat, held)
    return hand[slot].card, replace(state, hands=hands, deck=state.deck[1:])


def _with_hand(state: State, seat: int, hand: Hand) -> tuple[Hand, ...]:
    return (*state.hands[:seat], hand, *state.hands[seat + 1 :])


def _next(rules: Rules, before: State, after: State, event: Event) -> State:
    """Pass the turn. The last card's draw gives every seat one more turn, its drawer included."""
    turns_left = before.turns_left
    if turns_left is not None:
        turns_left -= 1
    elif not after.deck:
        turns_left = rules.num_players
    return replace(
        after,
        seat=(before.seat + 1) % rules.num_players,
        turns_left=turns_left,
        events=(*before.events, event)[-rules.num_players :],
    )
