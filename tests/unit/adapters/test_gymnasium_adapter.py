"""Real Gymnasium environments as pure functions: replays, candidates, live copies, snapshots."""

import json
import random
from random import Random

import foreign_envs
import pytest

from troupe.conformance import CheckLimits, Reference, check_family
from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Task
from troupe_tasks.adapters.gymnasium import GymnasiumFamily, GymnasiumParams
from troupe_tasks.adapters.pettingzoo import PettingZooFamily, PettingZooParams
from troupe_tasks.adapters.record import decode

CORRIDOR = {"env": "foreign_envs:Corridor", "actions": ["left", "right"], "return_bound": 1.0}
# Seed 0 starts at 2 (numpy's PCG64 of gymnasium's np_random draws 2 of 0..2 first).
TASK = Task("t", "train", 0, json.dumps({"seed": 0}).encode())


def family(**params) -> GymnasiumFamily:
    return GymnasiumFamily(GymnasiumParams(**{**CORRIDOR, **params}))


def test_step_when_the_goal_is_reached_then_pays_what_the_environment_pays() -> None:
    env = family().environment()
    state = env.reset(TASK)
    assert env.observe(state, "player")[-1].content.startswith("2\n")
    back = env.step(state, "player", "Let me think.\naction: Left")
    assert (back.team_reward, back.done) == (pytest.approx(-0.1), False)
    assert back.local_rewards == {"format": 1.0, "own": pytest.approx(-0.1)}
    there = env.step(env.step(back.state, "player", "right").state, "player", "right")
    assert (there.team_reward, there.done, there.success) == (1.0, True, True)
    assert there.info["return"] == pytest.approx(0.8)


def test_step_when_the_answer_names_no_action_then_costs_a_step_and_is_paid_the_penalty() -> None:
    env = family(unread_reward=-0.1, max_steps=2).environment()
    state = env.reset(TASK)
    first = env.step(state, "player", "left or right")
    assert (first.team_reward, first.local_rewards, first.done) == (-0.1, {"format": 0.0}, False)
    assert env.step(first.state, "player", "").done


def test_step_when_after_the_end_then_changes_nothing_and_pays_nothing() -> None:
    env = family().environment()
    over = env.step(env.reset(TASK), "player", "right")
    assert over.done
    again = env.step(over.state, "player", "right")
    assert (again.state, again.team_reward, again.done) == (over.state, 0.0, True)


def test_step_when_candidates_fork_a_state_then_each_equals_its_own_line() -> None:
    shared, alone = family().environment(), family(max_live=0).environment()
    state = shared.step(shared.reset(TASK), "player", "left").state
    for action in ("left", "right", "left", "jump"):
        assert shared.step(state, "player", action) == alone.step(state, "player", action)


def test_step_when_the_line_goes_straight_on_then_replays_nothing() -> None:
    walker = family(env_kwargs={"width": 9})
    env = walker.environment()
    state = env.reset(TASK)
    for _ in range(6):
        state = env.step(state, "player", "left").state
    assert walker._worlds.num_replayed == 0
    env.step(decode_first_fork(env, state), "player", "right")
    assert walker._worlds.num_replayed > 0


def decode_first_fork(env, state: bytes) -> bytes:
    """The same state again: its live copy is given away by the first of two candidates."""
    env.step(state, "player", "right")
    return state


def test_state_when_an_environment_can_save_itself_then_holds_no_history() -> None:
    saving = {"save": "foreign_envs:save_corridor", "restore": "foreign_envs:restore_corridor"}
    env, plain = family(**saving, max_live=0).environment(), family().environment()
    state, other = env.reset(TASK), plain.reset(TASK)
    for action in ("left", "left", "right", "right", "right"):
        done, same = env.step(state, "player", action), plain.step(other, "player", action)
        assert (done.team_reward, done.done) == (same.team_reward, same.done)
        assert decode(done.state).history == ()
        state, other = done.state, same.state
    assert done.success


def test_step_when_the_environment_draws_globally_then_replays_alike_and_disturbs_nobody() -> None:
    params = {"env": "foreign_envs:GloballyRandom"}
    env, other = family(**params).environment(), family(**params, max_live=0).environment()
    random.seed(1)
    expected = random.Random(1).random()
    state = env.step(env.reset(TASK), "player", "left").state
    assert random.random() == expected
    assert env.step(state, "player", "left") == other.step(state, "player", "left")


def test_reset_when_the_constructor_draws_globally_then_copies_are_alike_and_disturb_nobody():
    made = {"env": "foreign_envs:DrawnWhenMade"}
    together = {"env": "foreign_envs:DrawnWhenMadeTogether", "api": "parallel", "return_bound": 1.0}
    random.seed(1)
    first = random.Random(1).random()
    for env in (
        family(**made).environment(),
        PettingZooFamily(PettingZooParams(**together)).environment(),
    ):
        assert env.reset(TASK) == env.reset(TASK)
    assert random.random() == first


def test_step_when_a_saving_environment_draws_globally_then_each_candidate_draws_alike() -> None:
    params = {"env": "foreign_envs:GloballyRandom", "env_kwargs": {"width": 9}}
    saving = {"save": "foreign_envs:save_corridor", "restore": "foreign_envs:restore_corridor"}
    env, other = family(**params, **saving).environment(), family(**params, **saving).environment()
    plain = family(**params).environment()
    state, replayed = env.reset(TASK), plain.reset(TASK)
    for _ in range(3):
        done = [world.step(state, "player", "left").state for world in (env, env, env, other)]
        assert len({decode(after).prompts["player"] for after in done}) == 1
        assert set(done) == {done[0]}
        replayed = plain.step(replayed, "player", "left").state
        assert decode(replayed).prompts == decode(done[0]).prompts
        state = done[0]


def test_step_when_the_environment_is_not_determined_then_is_refused_with_the_way_out() -> None:
    env = family(env="foreign_envs:NotDetermined").environment()
    state = env.step(env.reset(TASK), "player", "left").state
    env.step(state, "player", "left")
    with pytest.raises(InvalidArgumentError, match="save and restore"):
        env.step(state, "player", "left")


def test_family_when_the_action_space_is_continuous_then_needs_a_parser() -> None:
    box = {"env": "foreign_envs:Steering", "actions": None}
    with pytest.raises(InvalidArgumentError, match="parser"):
        family(**box)
    steering = family(**box, parser="foreign_envs:parse_number", expert="foreign_envs:steer")
    env = steering.environment()
    state = env.reset(TASK)
    done = env.step(state, "player", steering.demonstrate(state, "player", Random(0)))
    assert done.success
    assert done.team_reward == pytest.approx(1.0, abs=1e-3)
    assert env.step(state, "player", "no number").local_rewards["format"] == 0.0
    assert env.step(state, "player", steering.random_action(state, "player", Random(0))).done


def test_random_action_when_the_environment_masks_actions_then_is_legal() -> None:
    taxi = GymnasiumFamily(
        GymnasiumParams(
            env="Taxi-v4",
            actions=["south", "north", "east", "west", "pickup", "dropoff"],
            return_bound=20.0,
        )
    )
    state = taxi.environment().reset(taxi.taskset().task("train", 0))
    legal = decode(state).note["legal"]["player"]
    names = ["south", "north", "east", "west", "pickup", "dropoff"]
    drawn = {taxi.random_action(state, "player", Random(n)) for n in range(60)}
    assert drawn == {names[i] for i in legal}
    assert 0 < len(legal) < 6


def test_observe_when_the_environment_draws_text_then_shows_it() -> None:
    lake = GymnasiumFamily(GymnasiumParams(env="FrozenLake-v1", is_drawn=True, return_bound=1.0))
    env = lake.environment()
    shown = env.observe(env.reset(TASK), "player")[-1].content
    assert "FHFH" in shown
    assert shown.endswith("one of: 0, 1, 2, 3")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"env": "NoSuchEnv-v0"}, "NoSuchEnv"),
        ({"env": "no_such_module:Env"}, "no_such_module"),
        ({"actions": ["left"]}, "2 actions"),
        ({"actions": ["left", "LEFT"]}, "different names"),
        ({"save": "foreign_envs:save_corridor"}, "both save and restore"),
        ({"expert": "steer"}, "module:attr"),
        ({"env_kwargs": {"height": 3}}, "height"),
    ],
)
def test_family_when_parameters_are_wrong_then_says_which(params: dict, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        family(**params)


def test_tasks_when_any_seed_is_used_then_splits_never_share_an_environment_seed() -> None:
    seen: dict[int, str] = {}
    for seed in (0, 1, 7):
        taskset = family(seed=seed).taskset()
        for split in ("train", "validation", "test"):
            for index in range(50):
                drawn = json.loads(taskset.task(split, index).payload)["seed"]
                assert seen.setdefault(drawn, split) == split


def test_family_when_the_kit_tries_to_break_it_then_holds() -> None:
    params = {**CORRIDOR, "unread_reward": -0.1, "expert": "foreign_envs:always_right"}
    limits = CheckLimits(
        num_tasks=2, seconds=0.2, max_steps=8, huge_chars=50_000, split_sample=20, num_processes=1
    )
    reference = Reference("gymnasium", params, (foreign_envs.__file__.rpartition("/")[0],))
    report = check_family(
        GymnasiumFamily(GymnasiumParams(**params)), reference=reference, limits=limits
    )
    assert report.is_ok, report.text()
    assert report["scripted_beats_random"].outcome == "passed"
