"""Text games by the four methods of TextArena: seats, stories, endings, replays."""

from random import Random

import pytest

from troupe.conformance import CheckLimits, check_family
from troupe.errors import InvalidArgumentError
from troupe_tasks.adapters.textarena import TextArenaFamily, TextArenaParams

PARAMS = {"env": "foreign_envs:Nim", "samples": ["[1]", "[2]"], "max_steps": 10}


def nim(**params) -> TextArenaFamily:
    return TextArenaFamily(TextArenaParams(**{**PARAMS, **params}))


def test_step_when_a_game_is_played_then_seats_alternate_and_the_winner_is_paid() -> None:
    game = nim()
    env = game.environment()
    state = env.reset(game.taskset().task("train", 0))
    sticks = int(env.observe(state, "player_0")[0].content.rsplit("[GAME] ", 1)[1].split()[0])
    number = 0
    while sticks > 2:
        agent = f"player_{number % 2}"
        assert env.observe(state, f"player_{(number + 1) % 2}") == ()
        state = env.step(state, agent, "[1]").state
        sticks, number = sticks - 1, number + 1
    winner, loser = f"player_{number % 2}", f"player_{(number + 1) % 2}"
    assert "took 1" in env.observe(state, winner)[0].content
    done = env.step(state, winner, "[2]")
    assert (done.done, done.team_reward, done.success) == (True, 0.0, False)
    assert done.local_rewards == {"format": 1.0, "own": 1.0, f"{loser}/own": -1.0}


def test_step_when_the_game_calls_a_move_invalid_then_the_mover_loses() -> None:
    game = nim()
    env = game.environment()
    done = env.step(env.reset(game.taskset().task("train", 0)), "player_0", "all of them")
    assert done.done
    assert done.local_rewards["own"] == -1.0
    assert done.info["reason"] == "invalid"


def test_step_when_replayed_in_another_family_then_is_the_same() -> None:
    one, other = nim(), nim(max_live=0)
    task = one.taskset().task("test", 5)
    state, rng = one.environment().reset(task), Random(3)
    for number in range(3):
        agent = f"player_{number % 2}"
        action = one.random_action(state, agent, rng)
        done = one.environment().step(state, agent, action)
        assert done == other.environment().step(state, agent, action)
        state = done.state


def test_family_when_the_kit_tries_to_break_it_then_holds() -> None:
    limits = CheckLimits(
        num_tasks=1, seconds=0.1, max_steps=10, huge_chars=20_000, split_sample=10, num_draws=5
    )
    report = check_family(nim(), limits=limits)
    assert report.is_ok, report.text()


def test_family_when_textarena_is_not_installed_then_says_what_to_install() -> None:
    with pytest.raises(InvalidArgumentError, match=r"textarena|cannot be made"):
        nim(env="NoSuchGame-v0").environment().reset(nim().taskset().task("train", 0))
