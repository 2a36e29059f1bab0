"""The Tic-Tac-Toe environment: exact credit, results for both seats, nothing to farm."""

import json
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Task, Transition
from troupe_tasks.tic_tac_toe import TicTacToe, TicTacToeParams
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe.state import State, decode, encode
from troupe_tasks.tic_tac_toe.text import read_move

FAMILY = TicTacToe(TicTacToeParams())
ENV = FAMILY.environment()
RIVAL = {"player_1": "player_2", "player_2": "player_1"}

answers = st.lists(
    st.one_of(st.sampled_from([f"play {name}" for name in boards.NAMES]), st.text(max_size=20)),
    max_size=12,
)


def _task(board: str, x_seat: int = 0) -> Task:
    payload = encode(State(board, x_seat, boards.value(board), salt=1))
    return Task("t", "train", 0, payload)


def _mover(state: bytes) -> str:
    return decode(state).seat


def _play(board: str, moves: str, env=ENV) -> list[Transition]:
    """Each letter-number pair in ``moves``, by whoever is to move."""
    state, done = env.reset(_task(board)), []
    for move in moves.split():
        done.append(env.step(state, _mover(state), f"play {move}"))
        state = done[-1].state
    return done


def test_observe_when_to_move_then_shows_the_board_and_the_other_seat_sees_nothing() -> None:
    state = ENV.reset(_task("x...o...."))
    assert ENV.observe(state, "player_1")[0].content == (
        "x a1 o b2 free b1 c1 a2 c2 a3 b3 c3 you x"
    )
    assert ENV.observe(state, "player_2") == ()
    after = ENV.step(state, "player_1", "play c3").state
    assert ENV.observe(after, "player_1") == ()
    assert ENV.observe(after, "player_2")[0].content == (
        "x a1 c3 o b2 last c3 free b1 c1 a2 c2 a3 b3 you o"
    )


def test_observe_when_verbose_then_explains_and_draws() -> None:
    env = TicTacToe(TicTacToeParams(style="verbose")).environment()
    system, user = env.observe(env.reset(_task("x...o....")), "player_1")
    assert "play b2" in system.content
    assert "x . .\n. o .\n. . ." in user.content
    assert "You play x" in user.content


def test_step_when_x_completes_a_line_then_both_seats_get_the_result() -> None:
    won = _play("xx.oo....", "c1")[-1]
    assert (won.done, won.team_reward) == (True, 0.0)
    assert won.local_rewards == {
        "format": 0.0,
        "legal": 0.0,
        "value": 0.0,
        "outcome": 1.0,
        "player_2/outcome": -1.0,
    }
    assert won.info["result"] == "player_1 won"


def test_step_when_the_board_fills_then_it_is_a_draw_worth_nothing() -> None:
    drawn = _play("x...o....", "c3 b1 b3 a3 c1 c2 a2")[-1]
    assert drawn.done
    assert drawn.success
    assert drawn.local_rewards["outcome"] == drawn.local_rewards["player_2/outcome"] == 0.0


@pytest.mark.parametrize(
    ("board", "move", "value"),
    [
        ("xx.oo....", "c1", 0.0),  # wins: keeps the value 1
        ("xx.oo....", "c2", -1.0),  # blocks, and o blocks in turn: from a win to a draw
        ("xx.oo....", "a3", -2.0),  # lets o win: from 1 to -1
        ("....x....", "b1", -1.0),  # an edge against the centre: from 0 to -1
        ("....x....", "a1", 0.0),
    ],
)
def test_value_of_a_move_then_is_the_exact_minimax_change(
    board: str, move: str, value: float
) -> None:
    assert _play(board, move)[-1].local_rewards["value"] == value


@pytest.mark.parametrize("action", ["play a1", "play d4", "b2", "", "play", "I give up"])
def test_step_when_the_move_is_illegal_or_missing_then_the_game_is_lost(action: str) -> None:
    lost = ENV.step(ENV.reset(_task("x...o....")), "player_1", action)
    assert lost.done
    assert not lost.success
    assert lost.local_rewards["legal"] == -1.0
    assert lost.local_rewards["value"] == -1.0
    assert (lost.local_rewards["outcome"], lost.local_rewards["player_2/outcome"]) == (-1.0, 1.0)
    assert lost.info["forfeited_by"] == "player_1"


def test_step_when_words_follow_the_move_then_it_counts_and_costs_form() -> None:
    sloppy = ENV.step(ENV.reset(_task("x...o....")), "player_1", "play c3 because I like it")
    assert (sloppy.local_rewards["format"], sloppy.local_rewards["legal"]) == (-1.0, 0.0)
    assert decode(sloppy.state).board == "x...o...x"


def test_step_when_out_of_turn_or_after_the_end_then_changes_and_earns_nothing() -> None:
    state = ENV.reset(_task("xx.oo...."))
    early = ENV.step(state, "player_2", "play c2")
    assert (early.state, early.local_rewards, early.done) == (state, {}, False)
    over = ENV.step(state, "player_1", "play c1").state
    late = ENV.step(over, "player_2", "play c2")
    assert (late.state, late.local_rewards, late.done) == (over, {}, True)


def test_success_when_nobody_gets_less_than_the_opening_is_worth_then_holds() -> None:
    # The opening is won for x: a win is par, anything less is not.
    assert boards.value("xx.oo....") == 1
    assert _play("xx.oo....", "c1")[-1].success
    assert not _play("xx.oo....", "a3 c2")[-1].success


@given(answers, st.integers(0, 1), st.sampled_from(boards.after(2)))
def test_rewards_when_anything_is_answered_then_stay_in_their_bounds(
    texts: list[str], x_seat: int, board: str
) -> None:
    state = ENV.reset(_task(board, x_seat))
    totals = {seat: Counter[str]() for seat in RIVAL}
    opening = decode(state)
    for text in texts:
        seat = _mover(state)
        done = ENV.step(state, seat, text)
        assert done.team_reward == 0.0
        for name, value in done.local_rewards.items():
            owner, _, term = name.rpartition("/")
            totals[owner or seat][term] += value
        state = done.state
    after = decode(state)
    for seat, terms in totals.items():
        assert -1.0 <= terms["outcome"] <= 1.0
        assert terms["format"] <= 0.0 and terms["legal"] <= 0.0 and terms["value"] <= 0.0
        assert terms["legal"] >= -1.0
        if after.is_done:
            assert terms["outcome"] == after.result_for(seat)
    assert totals["player_1"]["outcome"] == -totals["player_2"]["outcome"]
    if after.is_done:
        # What both gave away explains the result exactly.
        given_1, given_2 = (totals[seat]["value"] for seat in RIVAL)
        assert after.result_for("player_1") == opening.par_for("player_1") + given_1 - given_2


@given(answers)
def test_return_against_an_opponent_when_anything_is_answered_then_stays_under_the_bound(
    texts: list[str],
) -> None:
    family = TicTacToe(TicTacToeParams(opponent="random"))
    env = family.environment()
    state, total = env.reset(family.taskset().task("train", len(texts))), 0.0
    for text in texts:
        done = env.step(state, "player_1", text)
        state, total = done.state, total + done.team_reward
    assert -1.0 <= total <= family.return_bound


@given(st.text(max_size=40), st.sampled_from(sorted(RIVAL)))
def test_step_when_repeated_then_gives_equal_results_and_leaves_the_state(
    text: str, agent: str
) -> None:
    state = ENV.reset(_task("x...o...."))
    copy = bytes(state)
    assert ENV.step(state, agent, text) == ENV.step(state, agent, text)
    assert state == copy
    json.dumps(dict(ENV.step(state, agent, text).info))


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_game_when_forked_and_replayed_then_ends_in_the_same_bytes(seed: int, marks: int) -> None:
    family = TicTacToe(TicTacToeParams(opening_marks=marks))
    env, rng = family.environment(), Random(seed)
    tasks = family.taskset()
    task = tasks.task("train", seed % (tasks.size("train") or 1))
    moves: list[tuple[str, str]] = []
    state = env.reset(task)
    while not decode(state).is_done:
        seat = _mover(state)
        moves.append((seat, family.random_action(state, seat, rng)))
        env.step(state, seat, "play a1")  # a fork that is thrown away
        state = env.step(state, *moves[-1]).state
        assert encode(decode(state)) == state
        assert len(state) < 256
    again = env.reset(task)
    for seat, move in moves:
        again = (
            TicTacToe(TicTacToeParams(opening_marks=marks))
            .environment()
            .step(again, seat, move)
            .state
        )
    assert again == state


@pytest.mark.parametrize("marks", range(1, 7))
def test_demonstrations_on_every_task_then_end_at_par_without_a_blunder(marks: int) -> None:
    family, rng = TicTacToe(TicTacToeParams(opening_marks=marks)), Random(marks)
    env, tasks = family.environment(), family.taskset()
    for split in ("train", "validation", "test"):
        for index in range(0, tasks.size(split) or 0, 7 if marks > 2 else 1):
            state, done = env.reset(tasks.task(split, index)), None
            while done is None or not done.done:
                seat = _mover(state)
                done = env.step(state, seat, family.demonstrate(state, seat, rng))
                state = done.state
                assert done.local_rewards["value"] == 0.0
            assert done.success
            assert done.info["blunders"] == {"player_1": 0, "player_2": 0}


@pytest.mark.parametrize("opponent", ["random", "optimal"])
def test_opponent_when_the_agent_is_perfect_then_the_agent_never_falls_below_par(
    opponent: str,
) -> None:
    family = TicTacToe(TicTacToeParams(opponent=opponent, opening_marks=1))
    assert family.agents == ("player_1",)
    env, tasks, rng = family.environment(), family.taskset(), Random(0)
    returns: list[float] = []
    for index in range(tasks.size("train") or 0):
        state, done = env.reset(tasks.task("train", index)), None
        while done is None or not done.done:
            assert env.observe(state, "player_1")
            done = env.step(state, "player_1", family.demonstrate(state, "player_1", rng))
            state = done.state
        assert done.success
        returns.append(done.team_reward)
    if opponent == "optimal":
        assert set(returns) == {0.0}
    else:
        assert min(returns) >= 0.0
        assert max(returns) == 1.0


def test_optimal_opponent_when_the_agent_is_random_then_never_loses() -> None:
    family = TicTacToe(TicTacToeParams(opponent="optimal", opening_marks=1))
    env, tasks, rng = family.environment(), family.taskset(), Random(5)
    losses = 0
    for index in range(tasks.size("train") or 0):
        state, done = env.reset(tasks.task("train", index)), None
        while done is None or not done.done:
            done = env.step(state, "player_1", family.random_action(state, "player_1", rng))
            state = done.state
        assert done.team_reward <= 0.0
        losses += done.team_reward < 0
    assert losses > 0


def test_opponent_when_its_seat_is_asked_for_then_is_refused() -> None:
    env = TicTacToe(TicTacToeParams(opponent="optimal")).environment()
    state = env.reset(_task("x...o...."))
    with pytest.raises(InvalidArgumentError, match="plays player_2 itself"):
        env.step(state, "player_2", "play b1")
    with pytest.raises(InvalidArgumentError, match="no agent 'judge'"):
        ENV.observe(state, "judge")


def test_vocabulary_when_prompts_and_moves_are_split_then_knows_each_word() -> None:
    known, rng = set(FAMILY.vocabulary()), Random(0)
    for index in range(0, 40, 3):
        state = ENV.reset(FAMILY.taskset().task("train", index))
        while not decode(state).is_done:
            seat = _mover(state)
            action = FAMILY.demonstrate(state, seat, rng)
            assert set(f"{ENV.observe(state, seat)[0].content} {action}".split()) <= known
            state = ENV.step(state, seat, action).state


@pytest.mark.parametrize(
    ("text", "move", "is_well_formed"),
    [
        ("play b2", 4, True),
        ("The centre is free.\nplay: (B2)", 4, True),
        ("play a1, no: play c3", 8, True),
        ("play b2 now", 4, False),
        ("play b22", None, False),
        ("play d1", None, False),
        ("display b2", None, False),
        ("b2", None, False),
        ("", None, False),
    ],
)
def test_read_move_on_each_shape_then_reads_cell_and_form(
    text: str, move: int | None, is_well_formed: bool
) -> None:
    assert read_move(text) == (move, is_well_formed)
