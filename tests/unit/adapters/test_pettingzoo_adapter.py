"""Real PettingZoo games: turns, illegal moves, simultaneous actions, agents' own rewards."""

from random import Random

import pytest

from troupe.conformance import CheckLimits, check_family
from troupe.errors import InvalidArgumentError
from troupe_tasks.adapters.pettingzoo import PettingZooFamily, PettingZooParams

QUICK = CheckLimits(
    num_tasks=1, seconds=0.1, max_steps=10, huge_chars=20_000, split_sample=10, num_draws=5
)


def tic_tac_toe(**params) -> PettingZooFamily:
    return PettingZooFamily(
        PettingZooParams(env="classic/tictactoe-v3", return_bound=0.0, max_steps=20, **params)
    )


def rock_paper_scissors() -> PettingZooFamily:
    return PettingZooFamily(
        PettingZooParams(
            env="classic/rps-v2",
            api="parallel",
            env_kwargs={"max_cycles": 2},
            actions=["rock", "paper", "scissors"],
            return_bound=0.0,
        )
    )


def test_step_when_a_row_is_finished_then_each_agent_gets_its_own_reward() -> None:
    game = tic_tac_toe()
    env = game.environment()
    state = env.reset(game.taskset().task("train", 0))
    # Columns are numbered downwards: player_1 takes 0, 1, 2 and wins.
    for number, cell in enumerate("03142"):
        agent = game.agents[number % 2]
        other = game.agents[(number + 1) % 2]
        assert env.observe(state, agent)
        assert env.observe(state, other) == ()
        done = env.step(state, agent, cell)
        state = done.state
    assert done.done
    assert done.team_reward == 0.0
    assert done.local_rewards == {"format": 1.0, "own": 1.0, "player_2/own": -1.0}


def test_step_when_it_is_another_agents_turn_then_nothing_is_played() -> None:
    game = tic_tac_toe()
    env = game.environment()
    state = env.reset(game.taskset().task("train", 0))
    early = env.step(state, "player_2", "0")
    assert early.local_rewards == {"format": 0.0}
    assert env.observe(early.state, "player_1") == env.observe(state, "player_1")


def test_random_action_when_cells_are_taken_then_is_legal() -> None:
    game = tic_tac_toe()
    env = game.environment()
    state = env.step(env.reset(game.taskset().task("train", 0)), "player_1", "4").state
    drawn = {game.random_action(state, "player_2", Random(n)) for n in range(80)}
    assert drawn == set("01235678")


def test_step_when_agents_act_at_once_then_the_first_one_shows_the_second_nothing() -> None:
    game = rock_paper_scissors()
    env = game.environment()
    first, second = game.agents
    state = env.reset(game.taskset().task("train", 0))
    before = env.observe(state, second)
    waiting = env.step(state, first, "paper")
    assert (waiting.team_reward, waiting.local_rewards) == (0.0, {"format": 1.0})
    assert env.observe(waiting.state, first) == ()
    assert env.observe(waiting.state, second) == before
    played = env.step(waiting.state, second, "rock")
    assert played.local_rewards == {"format": 1.0, "own": -1.0, f"{first}/own": 1.0}
    assert not played.done
    last = env.step(env.step(played.state, first, "rock").state, second, "rock")
    assert last.done


@pytest.mark.parametrize("make", [tic_tac_toe, rock_paper_scissors])
def test_family_when_the_kit_tries_to_break_it_then_holds(make) -> None:
    report = check_family(make(), limits=QUICK)
    assert report.is_ok, report.text()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"env": "classic/tictacto-v3"}, "classic/tictactoe-v3"),
        ({"env": "classic/tictactoe-v3", "api": "parallel"}, "no parallel environment"),
        ({"env": "pettingzoo.no_such:env"}, "no_such"),
        ({"env": "classic/tictactoe-v3", "env_kwargs": {"size": 4}}, "size"),
        ({"env": "classic/tictactoe-v3", "actions": ["a"]}, "9 actions"),
    ],
)
def test_family_when_parameters_are_wrong_then_says_which(params: dict, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        PettingZooFamily(PettingZooParams(**params, return_bound=0.0))
