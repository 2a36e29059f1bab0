"""The Hanabi environment: hidden cards stay hidden, shared credit, nothing to farm."""

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Task
from troupe_tasks.hanabi import Hanabi, HanabiParams, game
from troupe_tasks.hanabi.cards import SEATS
from troupe_tasks.hanabi.game import Move
from troupe_tasks.hanabi.state import Held, State, decode, encode
from troupe_tasks.hanabi.text import answer, observation, read_move
from troupe_tasks.hanabi.view import view

PARAMS = HanabiParams(colours=2, ranks=3, hand_size=2, target=4)
FAMILY, RULES = Hanabi(PARAMS), PARAMS.rules()
ENV = FAMILY.environment()
# player_1 holds r1 y3, player_2 holds r2 r1; y1 is drawn next.
TASK = Task("t", "train", 0, b"r1y3r2r1y1y1y2r1r3y1y2r2:5")

answers = st.lists(
    st.one_of(
        st.builds("{} {}".format, st.sampled_from(["play", "discard"]), st.integers(1, 3)),
        st.builds("hint {} {}".format, st.sampled_from(SEATS[:2]), st.sampled_from(list("ry123"))),
        st.text(max_size=12),
    ),
    max_size=60,
)


def _prompt(state: bytes, agent: str, env=ENV) -> str:
    return "\n".join(message.content for message in env.observe(state, agent))


def test_observe_at_first_then_shows_the_others_cards_and_blank_own_ones() -> None:
    state = ENV.reset(TASK)
    assert _prompt(state, "player_1") == (
        "lives 3 hints 8 deck 8 piles r0 y0 player_2 1 r2 ?? 2 r1 ?? you 1 ?? 2 ??"
    )
    assert ENV.observe(state, "player_2") == ()


def test_observe_after_a_hint_then_its_target_knows_what_is_and_what_is_not() -> None:
    state = ENV.step(ENV.reset(TASK), "player_1", "hint player_2 2").state
    assert _prompt(state, "player_2") == (
        "lives 3 hints 7 deck 8 piles r0 y0 player_1 1 r1 ?? 2 y3 ?? "
        "last player_1 hint player_2 2 1 you 1 ?2 2 ?? no 2"
    )


def test_observe_when_verbose_then_explains_the_rules_and_the_table() -> None:
    env = Hanabi(PARAMS.model_copy(update={"style": "verbose"})).environment()
    state = env.step(env.reset(TASK), "player_1", "hint player_2 red").state
    text = _prompt(state, "player_2", env)
    assert "hint player_2 red" in text
    assert "player_1 hinted red to you: cards 1, 2." in text
    assert "player_1 holds 1: red 1 (knows not hinted, red or yellow, rank 1 or 2 or 3)" in text
    assert "oldest first: 1: hinted, red, rank 1 or 2 or 3; 2: hinted, red" in text


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 5), st.sampled_from(["compact", "verbose"]))
def test_observe_when_hidden_cards_are_swapped_then_nothing_seen_changes(
    data: st.DataObject, players: int, style: str
) -> None:
    params = HanabiParams(players=players, style=style)
    state = _midgame(params, data.draw(st.integers(0, 2**31)), data.draw(st.integers(0, 30)))
    seat = data.draw(st.integers(0, players - 1))
    own = state.hands[seat]
    hidden = data.draw(st.permutations([*(held.card for held in own), *state.deck]))
    hand = tuple(Held(card, h.note) for card, h in zip(hidden, own, strict=False))
    hands = (*state.hands[:seat], hand, *state.hands[seat + 1 :])
    swapped = replace(state, hands=hands, deck=tuple(hidden[len(own) :]))
    rules = params.rules()
    seen = observation(view(rules, state, seat), params.style)
    assert observation(view(rules, swapped, seat), params.style) == seen
    # And what the other seats see does change with the hand: the test can tell.
    if [held.card for held in hand] != [held.card for held in own]:
        other = (seat + 1) % players
        assert observation(view(rules, swapped, other), params.style) != observation(
            view(rules, state, other), params.style
        )


def _midgame(params: HanabiParams, seed: int, turns: int) -> State:
    rng, rules = Random(seed), params.rules()
    env = Hanabi(params).environment()
    state = decode(env.reset(Hanabi(params).taskset().task("train", seed)))
    for _ in range(turns):
        moves = [m for m in game.legal_moves(rules, state) if m.kind != "play"]
        after = game.moved(rules, state, rng.choice(moves))
        if game.is_over(rules, after):
            break
        state = after
    return state


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 30), st.integers(2, 5))
def test_demonstrate_when_hidden_cards_are_swapped_then_decides_the_same(
    seed: int, turns: int, players: int
) -> None:
    params = HanabiParams(players=players)
    family, state = Hanabi(params), _midgame(params, seed, turns)
    own, rng = state.hands[state.seat], Random(seed)
    hidden = [*(held.card for held in own), *state.deck]
    rng.shuffle(hidden)
    hand = tuple(Held(card, h.note) for card, h in zip(hidden, own, strict=False))
    hands = (*state.hands[: state.seat], hand, *state.hands[state.seat + 1 :])
    swapped = replace(state, hands=hands, deck=tuple(hidden[len(own) :]))
    agent = SEATS[state.seat]
    assert family.demonstrate(encode(state), agent, Random(0)) == family.demonstrate(
        encode(swapped), agent, Random(0)
    )


def test_step_when_a_card_is_played_then_all_seats_share_the_point() -> None:
    played = ENV.step(ENV.reset(TASK), "player_1", "play 1")
    assert played.team_reward == pytest.approx(1 / 6)
    assert played.local_rewards == {
        "format": 0.0,
        "legal": 0.0,
        "life": 0.0,
        "hint": 0.0,
        "reach": 0.0,
        "player_2/shared": pytest.approx(1 / 6),
    }
    assert played.info["score"] == 1


def test_step_when_a_hint_points_at_a_playable_card_then_is_paid_once() -> None:
    state = ENV.reset(TASK)
    told = ENV.step(state, "player_1", "hint player_2 1")
    assert told.local_rewards["hint"] == pytest.approx(1 / 6)
    assert ENV.step(state, "player_1", "hint player_2 2").local_rewards["hint"] == 0.0
    back = ENV.step(told.state, "player_2", "hint player_1 r").state
    again = ENV.step(back, "player_1", "hint player_2 1")
    assert (again.local_rewards["hint"], again.local_rewards["legal"]) == (0.0, 0.0)


def test_step_when_the_last_copy_is_discarded_then_reach_falls_by_what_it_blocks() -> None:
    state = ENV.step(ENV.reset(TASK), "player_1", "hint player_2 1").state
    state = ENV.step(state, "player_2", "hint player_1 r").state
    lost = ENV.step(state, "player_1", "discard 2")
    assert lost.local_rewards["reach"] == pytest.approx(-1 / 6)


@pytest.mark.parametrize("action", ["discard 1", "hint player_2 y", "play 5", "", "who knows"])
def test_step_when_illegal_or_unreadable_then_costs_a_life_and_says_so(action: str) -> None:
    done = ENV.step(ENV.reset(TASK), "player_1", action)
    assert (done.local_rewards["legal"], done.local_rewards["life"]) == (-1.0, -1.0)
    assert done.team_reward == 0.0
    assert done.info["events"] == ["player_1 fault"]
    assert _prompt(done.state, "player_2").endswith("last player_1 fault you 1 ?? 2 ??")


def test_step_when_the_last_life_is_lost_then_the_points_are_paid_back() -> None:
    state, total = ENV.reset(TASK), 0.0
    for agent, action in (("player_1", "play 1"), ("player_2", "x"), ("player_1", "x")):
        done = ENV.step(state, agent, action)
        state, total = done.state, total + done.team_reward
    assert total == pytest.approx(1 / 6)
    lost = ENV.step(state, "player_2", "x")
    assert lost.done
    assert not lost.success
    assert lost.team_reward == pytest.approx(-1 / 6)
    assert lost.local_rewards["player_1/shared"] == pytest.approx(-1 / 6)


def test_step_when_out_of_turn_or_after_the_end_then_changes_and_earns_nothing() -> None:
    state = ENV.reset(TASK)
    early = ENV.step(state, "player_2", "play 1")
    assert (early.state, early.team_reward, early.local_rewards) == (state, 0.0, {})
    over = encode(replace(decode(state), lives=0))
    late = ENV.step(over, "player_1", "play 1")
    assert (late.state, late.done, late.team_reward) == (over, True, 0.0)


@settings(max_examples=150, deadline=None)
@given(answers)
def test_rewards_when_anything_is_answered_then_stay_in_their_bounds(texts: list[str]) -> None:
    state, total, done = ENV.reset(TASK), 0.0, False
    totals = Counter[str]()
    for text in texts:
        agent = SEATS[decode(state).seat]
        judged = ENV.step(state, agent, text)
        state, total, done = judged.state, total + judged.team_reward, judged.done
        for name, value in judged.local_rewards.items():
            totals[name] += value
    after = decode(state)
    assert total == pytest.approx(game.score(after) / RULES.max_score)
    assert total <= FAMILY.return_bound
    assert totals["life"] == after.lives - RULES.max_lives
    assert totals["reach"] == pytest.approx(game.attainable(RULES, after) / 6 - 1)
    assert 0.0 <= totals["hint"] <= RULES.num_cards / RULES.max_score
    assert totals["format"] <= 0.0 and totals["legal"] <= 0.0
    assert done == game.is_over(RULES, after)


def test_rewards_when_hints_and_discards_go_round_then_collect_nothing() -> None:
    state, paid = ENV.reset(TASK), 0.0
    for agent, action in [("player_1", "hint player_2 r"), ("player_2", "discard 1")] * 3:
        judged = ENV.step(state, agent, action)
        state = judged.state
        paid += judged.team_reward + judged.local_rewards["reach"]
    assert paid <= 0.0


@given(st.text(max_size=40), st.sampled_from(["player_1", "player_2"]))
def test_step_when_repeated_then_gives_equal_results(text: str, agent: str) -> None:
    state = ENV.reset(TASK)
    assert ENV.step(state, agent, text) == ENV.step(state, agent, text)
    assert encode(decode(state)) == state
    json.dumps(dict(ENV.step(state, agent, text).info))


@pytest.mark.parametrize("players", [2, 3, 4, 5])
def test_game_when_replayed_in_a_new_environment_then_ends_in_the_same_bytes(
    players: int,
) -> None:
    params = HanabiParams(players=players)
    family = Hanabi(params)
    assert family.agents == SEATS[:players]
    env, rng, known = family.environment(), Random(players), set(family.vocabulary())
    task = family.taskset().task("test", 3)
    state, done, moves = env.reset(task), False, list[tuple[str, str]]()
    while not done:
        agent = next(seat for seat in family.agents if env.observe(state, seat))
        action = family.demonstrate(state, agent, rng)
        assert set(f"{_prompt(state, agent, env)} {action}".split()) <= known
        env.step(state, agent, family.random_action(state, agent, rng))  # a fork, thrown away
        judged = env.step(state, agent, action)
        assert judged.local_rewards["legal"] == judged.local_rewards["format"] == 0.0
        assert len(judged.state) < 4096
        state, done = judged.state, judged.done
        moves.append((agent, action))
    again, fresh = Hanabi(params).environment().reset(task), Hanabi(params).environment()
    for agent, action in moves:
        again = fresh.step(again, agent, action).state
    assert again == state


def test_success_when_the_score_reaches_the_target_then_holds() -> None:
    done = replace(decode(ENV.reset(TASK)), piles=(3, 0), turns_left=1)
    assert not ENV.step(encode(done), "player_1", "hint player_2 r").success
    assert ENV.step(encode(done), "player_1", "play 1").done
    assert ENV.step(encode(replace(done, piles=(3, 1))), "player_1", "hint player_2 r").success


@pytest.mark.parametrize("partners", ["random", "scripted"])
def test_partners_when_scripted_then_one_agent_plays_the_whole_game(partners: str) -> None:
    family = Hanabi(HanabiParams(players=3, partners=partners, lives=10))
    assert family.agents == ("player_1",)
    env, rng = family.environment(), Random(0)
    state, done, total, turns = env.reset(family.taskset().task("train", 0)), False, 0.0, 0
    while not done:
        assert env.observe(state, "player_1")
        judged = env.step(state, "player_1", family.demonstrate(state, "player_1", rng))
        state, done, turns = judged.state, judged.done, turns + 1
        total += judged.team_reward
        assert not any("/" in name for name in judged.local_rewards)
    assert total == pytest.approx(game.score(decode(state)) / 25)
    assert turns > 10
    with pytest.raises(InvalidArgumentError, match="plays player_2 itself"):
        env.step(state, "player_2", "play 1")


def test_agent_when_the_table_has_no_such_seat_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no agent 'player_3'"):
        ENV.observe(ENV.reset(TASK), "player_3")


@pytest.mark.parametrize(
    ("text", "move", "is_well_formed"),
    [
        ("play 1", Move("play", 0), True),
        ("I think it is red. Discard 2.", Move("discard", 1), True),
        ("hint player_2 red", Move("hint", target=1, clue="r"), True),
        ("hint player_1 3", Move("hint", target=0, clue="3"), True),
        ("hint player_2 b", Move("hint", target=1, clue="b"), True),
        ("play 1 or rather play 2", Move("play", 1), True),
        ("play 2 because", Move("play", 1), False),
        ("play 12", None, False),
        ("play card", None, False),
        ("hint red", None, False),
        ("", None, False),
    ],
)
def test_read_move_on_each_shape_then_reads_move_and_form(
    text: str, move: Move | None, is_well_formed: bool
) -> None:
    assert read_move(text) == (move, is_well_formed)
    if move is not None:
        assert read_move(answer(move)) == (move, True)
