"""The Plan-Path environment: pure, honest about the position, and not to be farmed."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import Task
from troupe_tasks.plan_path import PlanPath, PlanPathParams
from troupe_tasks.plan_path.grid import Grid, Instance
from troupe_tasks.plan_path.state import decode_state, encode_instance, encode_state
from troupe_tasks.plan_path.text import read_answer

FAMILY = PlanPath(PlanPathParams(size=4, max_actions=6))
ENV = FAMILY.environment()
GRID = Grid(("....", ".##.", "....", "...."))
TASK = Task("t", "train", 0, encode_instance(Instance(GRID, (0, 0), (2, 1))))

move_lists = st.lists(st.text("UDLR", max_size=8), max_size=12)


def _prompt(state: bytes, agent: str) -> str:
    return "\n".join(message.content for message in ENV.observe(state, agent))


def test_observe_at_first_then_shows_start_goal_walls_and_exits() -> None:
    assert _prompt(ENV.reset(TASK), "tool") == "walls b2 c2 at a1 goal b3 open D R tool"


def test_observe_after_a_plan_then_shows_the_present_position_and_the_one_before() -> None:
    state = ENV.step(ENV.reset(TASK), "planner", "plan D D").state
    assert _prompt(state, "planner") == "walls b2 c2 at a3 goal b3 open U D R from a1 planner"


def test_step_when_the_tool_tries_moves_then_only_the_planner_sees_where_they_end() -> None:
    tried = ENV.step(ENV.reset(TASK), "tool", "simulate R D D")
    assert decode_state(tried.state).at == (0, 0)
    assert tried.team_reward == 0.0
    assert "tried R D D ends b1 blocked 2 planner" in _prompt(tried.state, "planner")
    assert "tried" not in _prompt(tried.state, "tool")


def test_step_when_the_tool_call_is_garbage_then_the_planner_is_told() -> None:
    tried = ENV.step(ENV.reset(TASK), "tool", "let me see")
    assert "tried nothing" in _prompt(tried.state, "planner")
    assert tried.local_rewards == {"format": 0.0, "legal": 0.0, "progress": 0.0}


def test_step_when_the_tool_finds_the_goal_then_the_task_is_not_solved() -> None:
    tried = ENV.step(ENV.reset(TASK), "tool", "simulate D D R")
    assert not tried.done
    assert tried.local_rewards["progress"] == 1.0


def test_step_when_the_plan_was_walked_then_the_trial_is_forgotten() -> None:
    state = ENV.step(ENV.reset(TASK), "tool", "simulate R").state
    assert "tried" not in _prompt(ENV.step(state, "planner", "plan D").state, "planner")


def test_step_when_a_move_is_illegal_then_stays_and_info_says_which() -> None:
    walked = ENV.step(ENV.reset(TASK), "planner", "plan U R D R")
    assert walked.info["blocked"] == [1, 3]
    assert walked.info["at"] == "c1"
    assert walked.local_rewards["legal"] == 0.0
    json.dumps(walked.info)


def test_step_when_legal_moves_lead_nowhere_then_the_legal_term_is_not_paid() -> None:
    state = ENV.reset(TASK)
    assert ENV.step(state, "planner", "plan R").local_rewards["legal"] == 0.0
    assert ENV.step(state, "planner", "plan D U").local_rewards["legal"] == 0.0
    assert ENV.step(state, "planner", "plan D").local_rewards["legal"] == 1.0


def test_step_when_the_plan_reaches_the_goal_then_pays_one_and_ends() -> None:
    walked = ENV.step(ENV.reset(TASK), "planner", "plan D D R")
    assert (walked.team_reward, walked.done, walked.success) == (1.0, True, True)


def test_step_when_the_plan_halves_the_true_distance_then_pays_its_share() -> None:
    walked = ENV.step(ENV.reset(TASK), "planner", "plan D")
    assert walked.team_reward == pytest.approx(1 / 3)
    assert walked.local_rewards["progress"] == pytest.approx(1 / 3)


def test_step_when_already_solved_then_pays_nothing_more() -> None:
    solved = ENV.step(ENV.reset(TASK), "planner", "plan D D R").state
    again = ENV.step(solved, "planner", "plan L R")
    assert (again.team_reward, again.done) == (0.0, True)


def test_step_when_repeated_then_gives_equal_results() -> None:
    state = ENV.reset(TASK)
    assert ENV.step(state, "planner", "plan D") == ENV.step(state, "planner", "plan D")


@given(st.text(max_size=60), st.sampled_from(["tool", "planner"]))
def test_step_when_the_text_is_anything_then_never_fails(action: str, agent: str) -> None:
    transition = ENV.step(ENV.reset(TASK), agent, action)
    assert ENV.observe(transition.state, agent)


def test_step_when_the_agent_is_unknown_then_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="judge"):
        ENV.step(ENV.reset(TASK), "judge", "plan D")


@given(move_lists)
def test_return_when_any_plans_are_played_then_stays_under_the_bound(plans: list[str]) -> None:
    assert _team_return(plans) <= FAMILY.return_bound


@given(move_lists)
def test_return_when_plans_wander_then_pay_no_more_than_the_distance_gained(
    plans: list[str],
) -> None:
    state, team_return = ENV.reset(TASK), 0.0
    for plan in plans:
        walked = ENV.step(state, "planner", " ".join(("plan", *plan)))
        state, team_return = walked.state, team_return + walked.team_reward
    after = decode_state(state)
    if not after.is_solved:
        gained = (after.first_distance - after.best) / after.first_distance
        assert team_return == pytest.approx(gained)


@given(move_lists)
def test_progress_when_summed_over_any_plans_then_telescopes(plans: list[str]) -> None:
    state, total = ENV.reset(TASK), 0.0
    for plan in plans:
        walked = ENV.step(state, "planner", " ".join(("plan", *plan)))
        state, total = walked.state, total + walked.local_rewards["progress"]
    after = decode_state(state)
    assert total == pytest.approx(1 - after.distance / after.first_distance)


def test_return_when_walking_back_and_forth_or_into_walls_then_is_nothing() -> None:
    assert _team_return(["RL"] * 50) == 0.0
    assert _team_return(["UUUUUU"] * 50) == 0.0
    assert _team_return(["DUDUDU"] * 50) == 0.0
    assert _team_return(["D", "U"] * 50) == pytest.approx(1 / 3)


def test_return_when_a_longer_way_is_walked_then_is_below_the_best_plan_per_step() -> None:
    best = ENV.step(ENV.reset(TASK), "planner", "plan D D R")
    detour = ENV.step(ENV.reset(TASK), "planner", "plan R R R D D L")
    assert best.team_reward + best.local_rewards["progress"] > (
        detour.team_reward + detour.local_rewards["progress"]
    )


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_demonstrate_when_both_agents_follow_it_then_the_task_is_solved(seed: int) -> None:
    family, rng = PlanPath(PlanPathParams(size=6, max_actions=4)), Random(seed)
    env = family.environment()
    state = env.reset(family.taskset().task("train", seed))
    is_solved = False
    for agent in family.agents * 10:
        transition = env.step(state, agent, family.demonstrate(state, agent, rng))
        assert transition.local_rewards["format"] == 1.0
        assert transition.local_rewards["legal"] == 1.0
        state, is_solved = transition.state, transition.success
        if transition.done:
            break
    assert is_solved


def test_demonstrate_when_the_planner_plays_alone_then_the_task_is_solved() -> None:
    state = ENV.reset(TASK)
    assert ENV.step(state, "planner", FAMILY.demonstrate(state, "planner", Random(0))).success


def test_demonstrate_when_the_trial_leads_away_then_the_planner_does_not_follow_it() -> None:
    state = ENV.step(ENV.reset(TASK), "tool", "simulate R").state
    assert FAMILY.demonstrate(state, "planner", Random(0)) == "plan D D R"


def test_vocabulary_when_observations_and_demonstrations_are_split_then_knows_each_word() -> None:
    known, rng = set(FAMILY.vocabulary()), Random(0)
    for index in range(20):
        state = ENV.reset(FAMILY.taskset().task("train", index))
        for agent in FAMILY.agents:
            action = FAMILY.demonstrate(state, agent, rng)
            assert set(f"{_prompt(state, agent)} {action}".split()) <= known
            state = ENV.step(state, agent, action).state


def test_observe_when_verbose_then_explains_the_rules_and_draws_the_map() -> None:
    env = PlanPath(PlanPathParams(size=4, style="verbose")).environment()
    state = env.step(env.reset(TASK), "tool", "simulate R D").state
    system, user = env.observe(state, "planner")
    assert "at most 8 moves" in system.content
    assert "@ . . .\n. # # .\n. G . .\n. . . ." in user.content
    assert "R D would end at b1; blocked moves, counted from 1: 2." in user.content


@pytest.mark.parametrize(
    ("text", "moves", "is_well_formed"),
    [
        ("plan R R D", "RRD", True),
        ("I go round.\nplan: [R, R, D]", "RRD", True),
        ("plan RRD", "RRD", True),
        ("plan U\nno, plan D", "D", True),
        ("plan R R then stop", "RR", False),
        ("plan R R R R R R R", "RRRRRR", False),
        ("plan", "", False),
        ("planner R", "", False),
        ("simulate R", "", False),
        ("plan Right", "", False),
        ("Plan: R R D", "RRD", True),
        ("PLAN R", "R", True),
        ("I plan to go round.\nPlan: R, R, D", "RRD", True),
        ("Plan U\nPlan: D\nPlan done", "D", False),
        ("plan R R D\nPlan done", "RRD", False),
        ("plan R R D\nPlan: U", "RRD", False),
        ("Plan: U\nplan R R D", "RRD", True),
        ("plan R plan", "", False),
        ("**Plan:** R R D", "RRD", True),
        ("Round it.\n**Plan: R, R, D**", "RRD", True),
        ("plan: `R R D`", "RRD", True),
        ("**plan R R D** and on", "RRD", False),
        ("**Plan** to go Right", "", False),
        ("plan: `R`, `R`, `D`", "RRD", True),
        ("plan **R** **R** **D**", "RRD", True),
        ("Plan: R R D\nIn this plan `R` is right.", "RRD", False),
        ("Plan: R R D\n\n**Why this plan**\n* R moves us right", "RRD", False),
        ("plan:\n* R\n* R", "", False),
        ("Planner R", "", False),
        ("Plan Right", "", False),
        ("", "", False),
    ],
)
def test_read_answer_on_each_shape_then_reads_moves_and_form(
    text: str, moves: str, is_well_formed: bool
) -> None:
    answer = read_answer("planner", text, 6)
    assert (answer.moves, answer.is_well_formed) == (moves, is_well_formed)


@given(st.integers(0, 500), st.text("UDLR", max_size=6))
def test_state_when_encoded_and_decoded_then_is_the_same(index: int, moves: str) -> None:
    state = ENV.reset(FAMILY.taskset().task("train", index))
    for agent, word in (("tool", "simulate"), ("planner", "plan"), ("tool", "simulate")):
        state = ENV.step(state, agent, " ".join((word, *moves))).state
        assert encode_state(decode_state(state)) == state


def _team_return(plans: list[str]) -> float:
    state, total = ENV.reset(TASK), 0.0
    for plan in plans:
        transition = ENV.step(state, "planner", " ".join(("plan", *plan)))
        state, total = transition.state, total + transition.team_reward
    return total
