"""Hanabi in sentences, for a general instruction-tuned model."""

from troupe_tasks.hanabi.cards import COLOUR_NAMES, SEATS, Rules
from troupe_tasks.hanabi.state import Event, Note
from troupe_tasks.hanabi.view import View


def rules_text(rules: Rules) -> str:
    """The rules of one variant and the shape of an answer."""
    colours = ", ".join(COLOUR_NAMES[c] for c in rules.colours)
    copies = ", ".join(f"{rules.counts[rules.colours[0] + r]} of rank {r}" for r in rules.ranks)
    return (
        f"You play Hanabi, a cooperative card game, as one of {rules.num_players} players. Cards "
        f"have a colour ({colours}) and a rank; each colour has {copies}. You see everyone's cards "
        "but your own. Together you build one pile a colour, from rank 1 up to "
        f"{rules.ranks[-1]}; each card played in order is one point. On your turn do one of: play "
        "a card (one that does not fit costs a life), discard a card (gains a hint, allowed below "
        f"{rules.max_hints} hints), or hint (costs one): name a colour or a rank that another "
        "player holds, and all cards of it in that hand are shown to the player. A complete pile "
        f"gains a hint. The {rules.max_lives} lives are shared; without lives the game is lost and "
        "scores 0. When the deck is empty everyone has one more turn. An illegal answer costs a "
        "life. Think briefly, then end with one move in one of these shapes: play 1 | discard 2 | "
        f"hint {SEATS[1]} {COLOUR_NAMES[rules.colours[0]]} | hint {SEATS[0]} 1"
    )


def verbose(view: View) -> str:
    """The table as the seat sees it."""
    piles = zip(view.rules.colours, view.piles, strict=True)
    lines = [
        f"You are {SEATS[view.seat]}.",
        f"Lives: {view.lives}. Hints: {view.hints}. Cards in the deck: {view.deck_size}.",
        f"Piles: {', '.join(f'{COLOUR_NAMES[c]} {n}' for c, n in piles)}",
        f"Discarded: {', '.join(_card(c) for c in sorted(view.discards)) or 'nothing'}",
    ]
    if view.turns_left is not None:
        lines.append(f"The deck is empty; turns left, yours included: {view.turns_left}.")
    for seat, hand in view.others.items():
        cards = [f"{i}: {_card(h.card)} (knows {_note(h.note)})" for i, h in enumerate(hand, 1)]
        lines.append(f"{SEATS[seat]} holds {'; '.join(cards)}")
    lines += [_event(event, view.seat) for event in view.events]
    notes = [f"{i}: {_note(note)}" for i, note in enumerate(view.own, 1)]
    return "\n".join([*lines, f"Your own cards, oldest first: {'; '.join(notes)}", "Your move?"])


def _card(card: str) -> str:
    return f"{COLOUR_NAMES[card[0]]} {card[1]}"


def _note(note: Note) -> str:
    colours = " or ".join(COLOUR_NAMES[c] for c in note.colours)
    touched = "hinted" if note.is_touched else "not hinted"
    return f"{touched}, {colours}, rank {' or '.join(note.ranks)}"


def _event(event: Event, reader: int) -> str:
    seat = SEATS[event.seat]
    if event.kind == "fault":
        return f"{seat} made no legal move and lost a life."
    if event.kind == "hint":
        clue = COLOUR_NAMES.get(event.clue, f"rank {event.clue}")
        if event.target != reader:
            return f"{seat} hinted {clue} to {SEATS[event.target]}."
        return f"{seat} hinted {clue} to you: cards {', '.join(str(s + 1) for s in event.slots)}."
    verb = {"play": "played", "misplay": "misplayed", "discard": "discarded"}[event.kind]
    return f"{seat} {verb} {_card(event.card)}."
