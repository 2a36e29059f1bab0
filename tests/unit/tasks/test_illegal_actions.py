"""In every game a refused action is no success, pays nothing, and ends no better than a loss."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest

from troupe.tasks.family import TaskFamily, Transition
from troupe.tasks.registry import load_family
from troupe_tasks.tic_tac_toe import board as boards
from troupe_tasks.tic_tac_toe import state as states
from troupe_tasks.tic_tac_toe.family import TicTacToe, TicTacToeParams

GAMES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("blocksworld", {}),
    ("eight_queens", {}),
    ("hanabi", {}),
    ("hanabi", {"partners": "scripted"}),
    ("plan_path", {}),
    ("sokoban", {}),
    ("sudoku", {}),
    ("tic_tac_toe", {"opening_marks": 4}),
    ("tic_tac_toe", {"opening_marks": 4, "opponent": "optimal"}),
    ("tic_tac_toe", {"opening_marks": 4, "opponent": "random"}),
)
UNREADABLE = ("", "I resign.", "play zz", "fill", "\x00")


def _paid(family: TaskFamily, agent: str, done: Transition) -> float:
    """What the step pays ``agent`` by the family's own weights."""
    weights = family.local_terms[agent]
    local = sum(weights.get(name, 0.0) * paid for name, paid in done.local_rewards.items())
    return done.team_reward + local


def _tried(family: TaskFamily, num_tasks: int, seed: int) -> Iterator[tuple[str, bytes, str]]:
    """Each agent's turn on the way of random play: the agent, the state, a legal-looking move."""
    env, tasks, rng = family.environment(), family.taskset(), Random(seed)
    for index in range(num_tasks):
        state, is_done = env.reset(tasks.task("train", index)), False
        for turn in range(20):
            agent = family.agents[turn % len(family.agents)]
            if is_done:
                break
            if not env.observe(state, agent):
                continue
            action = family.random_action(state, agent, rng)
            yield agent, state, action
            done = env.step(state, agent, action)
            state, is_done = done.state, done.done


def _is_all_refused(done: Transition) -> bool:
    """Nothing of the answer was played; a puzzle's answer may hold allowed actions besides."""
    if "refused" in done.info:
        return len(done.info["refused"]) == len(done.info["actions"])
    return done.local_rewards.get("legal", 0.0) < 0.0


@pytest.mark.parametrize(("name", "params"), GAMES)
def test_step_when_the_action_is_refused_then_it_is_no_success_and_pays_nothing(
    name: str, params: Mapping[str, Any]
) -> None:
    family = load_family(name, params)
    env, moves, num_refused = family.environment(), set(UNREADABLE), 0
    for agent, state, action in _tried(family, num_tasks=4, seed=3):
        moves.add(action)
        legal_loss = env.step(state, agent, action)
        for move in sorted(moves)[:12]:
            done = env.step(state, agent, move)
            is_refused = move in UNREADABLE or _is_all_refused(done)
            if not is_refused:
                continue
            num_refused += 1
            has_score = done.info.get("score", 0) >= 15
            assert not done.success or has_score, (move, done.info)
            assert _paid(family, agent, done) <= 0.0, (move, done)
            if done.done and legal_loss.done and not legal_loss.success:
                assert _paid(family, agent, done) <= _paid(family, agent, legal_loss), (move, done)
    assert num_refused > 20


@pytest.mark.parametrize("opponent", ["none", "random", "optimal"])
@pytest.mark.parametrize("opening_marks", [1, 3, 4, 5])
def test_tic_tac_toe_when_any_opening_is_forfeited_then_is_no_success_and_least_paid(
    opponent: str, opening_marks: int
) -> None:
    params = TicTacToeParams.model_validate({"opponent": opponent, "opening_marks": opening_marks})
    family = TicTacToe(params)
    env, tasks = family.environment(), family.taskset()
    num_lost, num_tasks = 0, tasks.size("train") or 0
    for index in range(0, num_tasks, 1 + num_tasks // 24):
        state = env.reset(tasks.task("train", index))
        decoded = states.decode(state)
        agent, mark = decoded.seat, boards.to_move(decoded.board)
        if decoded.is_done or not env.observe(state, agent):
            continue
        num_lost += boards.value_for(mark, decoded.board) < 0
        taken = boards.NAMES[next(c for c, m in enumerate(decoded.board) if m != boards.EMPTY)]
        legal = [
            env.step(state, agent, f"play {boards.NAMES[cell]}")
            for cell in boards.free(decoded.board)
        ]
        for move in ("", f"play {taken}", "play z9"):
            forfeit = env.step(state, agent, move)
            assert forfeit.done
            assert not forfeit.success, (decoded.board, move)
            for done in legal:
                assert _paid(family, agent, forfeit) < _paid(family, agent, done)
    assert num_lost or opening_marks < 3
