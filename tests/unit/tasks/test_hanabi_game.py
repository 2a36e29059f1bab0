"""The rules of Hanabi on tables laid out by hand, and decks that splits never share."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.spec.issues import SpecInvalidError
from troupe.tasks.family import SPLITS
from troupe.tasks.registry import load_family
from troupe_tasks.hanabi import Hanabi, HanabiParams, game
from troupe_tasks.hanabi.cards import Rules, relabelled, split_cards
from troupe_tasks.hanabi.family import split_of
from troupe_tasks.hanabi.game import Move
from troupe_tasks.hanabi.player import scripted_move
from troupe_tasks.hanabi.state import State, decode, encode, first_state
from troupe_tasks.hanabi.view import view

FULL = HanabiParams().rules()
PAIR = HanabiParams(colours=2, ranks=3, hand_size=2).rules()
# Two hands of two, then the deck: player_1 holds r1 y3, player_2 holds r2 r1.
DECK = split_cards("r1y3r2r1y1y1y2r1r3y1y2r2")


def _table(rules: Rules = PAIR, deck: tuple[str, ...] = DECK) -> State:
    return first_state(rules, deck, salt=0)


def _played(state: State, *moves: Move | None, rules: Rules = PAIR) -> State:
    for move in moves:
        state = game.moved(rules, state, move)
    return state


def test_full_game_then_has_50_cards_8_hints_3_lives_and_hands_of_five_or_four() -> None:
    assert FULL.num_cards == 50
    assert FULL.max_score == 25
    assert [FULL.counts[f"g{rank}"] for rank in "12345"] == [3, 2, 2, 2, 1]
    assert (FULL.max_hints, FULL.max_lives) == (8, 3)
    sizes = [HanabiParams(players=n).rules().hand_size for n in (2, 3, 4, 5)]
    assert sizes == [5, 5, 4, 4]


def test_first_state_then_hands_come_from_the_front_of_the_deck() -> None:
    state = _table()
    assert [[h.card for h in hand] for hand in state.hands] == [["r1", "y3"], ["r2", "r1"]]
    assert state.deck == DECK[4:]


def test_play_when_the_card_is_next_then_the_pile_grows_and_a_card_is_drawn_last() -> None:
    state = _played(_table(), Move("play", 0))
    assert state.piles == (1, 0)
    assert [h.card for h in state.hands[0]] == ["y3", "y1"]
    assert (state.lives, state.hints, state.seat) == (3, 8, 1)


def test_play_when_the_card_does_not_fit_then_costs_a_life_and_the_card() -> None:
    state = _played(_table(), Move("play", 1))
    assert (state.lives, state.discards, state.piles) == (2, ("y3",), (0, 0))


def test_hint_then_costs_one_and_tells_which_cards_are_and_are_not() -> None:
    state = _played(_table(), Move("hint", target=1, clue="2"))
    assert state.hints == 7
    about, other = (held.note for held in state.hands[1])
    assert (about.ranks, about.colours, about.is_touched) == ("2", "ry", True)
    assert (other.ranks, other.colours, other.is_touched) == ("13", "ry", False)


@pytest.mark.parametrize(
    "move",
    [
        Move("hint", target=1, clue="y"),  # nobody there holds yellow
        Move("hint", target=0, clue="r"),  # to oneself
        Move("hint", target=2, clue="r"),  # there is no such seat
        Move("hint", target=1, clue="b"),  # no such colour in this variant
        Move("discard", 0),  # with all hints there
        Move("play", 2),  # no such slot
        None,
    ],
)
def test_illegal_move_then_costs_a_life_and_the_turn_and_nothing_else(move: Move | None) -> None:
    before = _table()
    after = _played(before, move)
    assert after == replace(before, lives=2, seat=1, events=after.events)
    assert after.events[-1].kind == "fault"


def test_discard_then_gains_a_hint_and_is_allowed_only_below_eight() -> None:
    state = _played(_table(), Move("hint", target=1, clue="r"))
    assert Move("discard", 0) in game.legal_moves(PAIR, state)
    state = _played(state, Move("discard", 0))
    assert (state.hints, state.discards) == (8, ("r2",))
    assert not any(move.kind == "discard" for move in game.legal_moves(PAIR, state))


def test_hint_when_no_token_is_left_then_is_illegal() -> None:
    state = replace(_table(), hints=0)
    assert {move.kind for move in game.legal_moves(PAIR, state)} == {"play", "discard"}


@pytest.mark.parametrize(("hints", "after"), [(3, 4), (8, 8)])
def test_complete_pile_then_gains_a_hint_unless_all_are_there(hints: int, after: int) -> None:
    state = replace(_table(), piles=(0, 2), hints=hints)
    assert _played(state, Move("play", 1)).hints == after


def test_last_card_drawn_then_every_seat_has_one_more_turn_its_drawer_included() -> None:
    state = replace(_table(), deck=("y1",))
    state = _played(state, Move("play", 0))  # draws the last card
    assert state.turns_left == 2
    state = _played(state, Move("hint", target=0, clue="y"))
    assert not game.is_over(PAIR, state)
    assert game.is_over(PAIR, _played(state, Move("hint", target=1, clue="r")))


def test_hand_when_the_deck_is_empty_then_shrinks() -> None:
    state = _played(replace(_table(), deck=(), turns_left=2), Move("play", 0))
    assert [h.card for h in state.hands[0]] == ["y3"]


def test_score_when_the_last_life_is_lost_then_is_nothing() -> None:
    state = replace(_table(), piles=(2, 2), lives=1)
    assert game.score(state) == 4
    lost = _played(state, None)
    assert game.is_over(PAIR, lost)
    assert (lost.points, game.score(lost), game.attainable(PAIR, lost)) == (4, 0, 0)


def test_game_when_every_pile_is_complete_then_ends_at_once() -> None:
    state = replace(_table(), piles=(3, 2))
    assert game.is_over(PAIR, _played(state, Move("play", 1)))


def test_attainable_when_all_copies_are_gone_then_stops_below_the_card() -> None:
    state = _table()
    assert game.attainable(PAIR, state) == 6
    assert game.attainable(PAIR, replace(state, discards=("r2",))) == 6
    assert game.attainable(PAIR, replace(state, discards=("r2", "r2"))) == 4
    assert game.attainable(PAIR, replace(state, discards=("y3", "r1", "r1", "r1"))) == 2
    assert game.attainable(PAIR, replace(state, discards=("r1",) * 2, piles=(1, 0))) == 6


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5))
def test_random_games_then_cards_are_conserved_notes_true_and_bytes_few(
    seed: int, players: int
) -> None:
    rng, rules = Random(seed), HanabiParams(players=players, lives=10).rules()
    state = first_state(rules, rules.shuffled(rng), seed)
    for turn in range(200):
        if game.is_over(rules, state):
            break
        before = state
        state = game.moved(rules, state, rng.choice(game.legal_moves(rules, state)))
        held = [h for hand in state.hands for h in hand]
        on_piles = [
            f"{c}{r}"
            for c, n in zip(rules.colours, state.piles, strict=True)
            for r in range(1, n + 1)
        ]
        cards = Counter([*state.deck, *state.discards, *(h.card for h in held), *on_piles])
        assert cards == Counter(rules.counts)
        assert all(h.card[0] in h.note.colours and h.card[1] in h.note.ranks for h in held)
        assert game.attainable(rules, state) <= game.attainable(rules, before)
        assert 0 <= state.hints <= 8
        assert decode(encode(state)) == state
        assert len(encode(state)) < 1024
        assert turn < 199


def test_scripted_players_when_they_play_together_then_score_far_above_random_ones() -> None:
    for players in (2, 3, 4, 5):
        games = [_ended(players, seed, scripted_move_of) for seed in range(12)]
        chance = [_ended(players, seed, random_move_of) for seed in range(12)]
        # Published bots of simple conventions score 15 to 18; random play loses its lives.
        assert sum(map(game.score, games)) / 12 > 15.0
        assert sum(state.points for state in chance) / 12 < 4.0
        assert sum(map(game.score, chance)) / 12 < 1.0


def scripted_move_of(rules: Rules, state: State, rng: Random) -> Move:
    return scripted_move(view(rules, state, state.seat), rng)


def random_move_of(rules: Rules, state: State, rng: Random) -> Move:
    return rng.choice(game.legal_moves(rules, state))


def _ended(players: int, seed: int, choose: Callable[[Rules, State, Random], Move]) -> State:
    rng, rules = Random(seed), HanabiParams(players=players).rules()
    state = first_state(rules, rules.shuffled(rng), seed)
    while not game.is_over(rules, state):
        move = choose(rules, state, rng)
        assert game.is_legal(rules, state, move)
        state = game.moved(rules, state, move)
    return state


@pytest.mark.parametrize("players", [2, 3, 4, 5])
def test_usual_workflow_when_a_game_is_as_long_as_can_be_then_its_turns_suffice(
    players: int,
) -> None:
    def slowest(rules: Rules, state: State, rng: Random) -> Move:
        moves = game.legal_moves(rules, state)
        hints = [move for move in moves if move.kind == "hint"]
        return (hints or [move for move in moves if move.kind == "discard"] or moves)[0]

    family = Hanabi(HanabiParams(players=players))
    limit = family.usual_workflow["max_turns"]
    rng, rules = Random(players), HanabiParams(players=players).rules()
    state, turns = first_state(rules, rules.shuffled(rng), 0), 0
    while not game.is_over(rules, state):
        state, turns = game.moved(rules, state, slowest(rules, state, rng)), turns + 1
    assert limit * players - 15 <= turns <= limit * players


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 4),
    st.integers(1, 3),
    st.integers(2, 4),
    st.integers(1, 2),
    st.integers(1, 3),
)
def test_scripted_player_in_any_variant_then_always_moves_legally(
    seed: int, players: int, colours: int, ranks: int, hand: int, hints: int
) -> None:
    if players * hand > HanabiParams(colours=colours, ranks=ranks, hand_size=1).rules().num_cards:
        return
    params = HanabiParams(
        players=players, colours=colours, ranks=ranks, hand_size=hand, hints=hints
    )
    rng, rules = Random(seed), params.rules()
    state = first_state(rules, rules.shuffled(rng), seed)
    while not game.is_over(rules, state):
        move = scripted_move(view(rules, state, state.seat), rng)
        assert game.is_legal(rules, state, move)
        state = game.moved(rules, state, move)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.permutations("rygwb"))
def test_split_of_a_deck_when_colours_are_renamed_then_stays(seed: int, names: list[str]) -> None:
    deck = FULL.shuffled(Random(seed))
    renamed = [names["rygwb".index(card[0])] + card[1] for card in deck]
    assert split_of(renamed) == split_of(deck)
    assert relabelled(renamed) == relabelled(deck)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_tasks_then_are_the_splits_own_and_equal_when_asked_twice(index: int) -> None:
    tasks = Hanabi(HanabiParams()).taskset()
    for split in SPLITS:
        task = tasks.task(split, index)
        deck = split_cards(task.payload.decode().split(":")[0])
        assert split_of(deck) == split
        assert Counter(deck) == Counter(FULL.counts)
        assert tasks.task(split, index) == task
    assert tasks.task("train", index) != Hanabi(HanabiParams(seed=1)).taskset().task("train", index)


def test_params_when_hands_do_not_fit_or_the_target_is_too_high_then_says_so() -> None:
    with pytest.raises(SpecInvalidError, match="smaller hand_size"):
        load_family("hanabi", {"colours": 1, "ranks": 2, "players": 2})
    with pytest.raises(SpecInvalidError, match="above the best score 4"):
        load_family("hanabi", {"colours": 2, "ranks": 2, "hand_size": 1, "target": 5})
    with pytest.raises(InvalidArgumentError, match="count from 0"):
        Hanabi(HanabiParams()).taskset().task("train", -1)
