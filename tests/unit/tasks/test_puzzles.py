"""What holds for every puzzle: pure steps, one bound that no tactic beats, solvers that solve."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task
from troupe_tasks.blocksworld import Blocksworld, BlocksworldParams
from troupe_tasks.eight_queens import EightQueens, EightQueensParams
from troupe_tasks.puzzles import PuzzleParams
from troupe_tasks.puzzles.answers import read_answer
from troupe_tasks.puzzles.state import decode_state, encode_state
from troupe_tasks.sokoban import Sokoban, SokobanParams
from troupe_tasks.sudoku import Sudoku, SudokuParams

Family = Sokoban | Sudoku | EightQueens | Blocksworld

PARAMS: dict[str, PuzzleParams] = {
    "sokoban": SokobanParams(boxes=2, min_pushes=3, max_actions=8),
    "sudoku": SudokuParams(max_actions=3),
    "eight_queens": EightQueensParams(size=6, given=1, closed=4, max_actions=3),
    "blocksworld": BlocksworldParams(size=4, max_actions=3),
}


def _family(name: str, **changes: Any) -> Family:
    kinds = {
        "sokoban": Sokoban,
        "sudoku": Sudoku,
        "eight_queens": EightQueens,
        "blocksworld": Blocksworld,
    }
    return kinds[name](PARAMS[name].model_copy(update=changes))


FAMILIES = {name: _family(name) for name in PARAMS}
LARGEST: dict[str, Family] = {
    "sokoban": Sokoban(SokobanParams(size=12, boxes=6, max_actions=64)),
    "sudoku": Sudoku(SudokuParams(size=9, holes=54, max_actions=81)),
    "eight_queens": EightQueens(EightQueensParams(size=10, given=0, closed=40, max_actions=36)),
    "blocksworld": Blocksworld(BlocksworldParams(size=12, max_actions=36)),
}
VERBOSE = {name: _family(name, style="verbose").environment() for name in PARAMS}
EXAMPLES = {
    "sokoban": ("simulate R R D", "plan R R D"),
    "sudoku": ("try x1 2, y3 4", "fill x1 2, y3 4"),
    "eight_queens": ("try x4, y1", "place x4, y1"),
    "blocksworld": ("simulate x table, y x", "plan x table, y x"),
}
each_family = pytest.mark.parametrize("name", FAMILIES)

Tactic = Callable[[str, bytes, str, Random], str]


def _demonstrate(name: str, state: bytes, agent: str, rng: Random) -> str:
    return FAMILIES[name].demonstrate(state, agent, rng)


def _wander(name: str, state: bytes, agent: str, rng: Random) -> str:
    return FAMILIES[name].random_action(state, agent, rng)


def _begin(name: str, state: bytes, agent: str, rng: Random) -> str:
    """The good answer, cut short."""
    words = _demonstrate(name, state, agent, rng).split(" ")
    return " ".join(words[: rng.randint(1, len(words))])


def _backwards(name: str, state: bytes, agent: str, rng: Random) -> str:
    keyword, *words = _demonstrate(name, state, agent, rng).split(" ")
    return " ".join([keyword, *reversed(words)])


def _echo_prompt(name: str, state: bytes, agent: str, rng: Random) -> str:
    env = rng.choice([FAMILIES[name].environment(), VERBOSE[name]])
    return "\n".join(message.content for message in env.observe(state, agent))


def _echo_example(name: str, state: bytes, agent: str, rng: Random) -> str:
    return EXAMPLES[name][agent == "planner"]


def _empty(name: str, state: bytes, agent: str, rng: Random) -> str:
    return rng.choice(["", " ", "\n\n", "plan", "fill", "place:", "simulate []"])


def _huge(name: str, state: bytes, agent: str, rng: Random) -> str:
    keyword, *words = _wander(name, state, agent, rng).split(" ")
    return " ".join([keyword, *words * 200])


def _many_formats(name: str, state: bytes, agent: str, rng: Random) -> str:
    """Several answers in several formats, good and bad ones, in any order."""
    answers = [_demonstrate(name, state, agent, rng), _wander(name, state, agent, rng)]
    answers += [json.dumps(answers[0].split(" ")[1:]), rf"\boxed{{{answers[0]}}}", "#### [1, 2]"]
    return rng.choice(["\n", " ", ";"]).join(rng.sample(answers, len(answers)))


def _claim(name: str, state: bytes, agent: str, rng: Random) -> str:
    return '{"done": true, "success": true, "reward": 1000000} solved, reward 1'


TACTICS: list[Tactic] = [
    _demonstrate,
    _wander,
    _begin,
    _backwards,
    _echo_prompt,
    _echo_example,
    _empty,
    _huge,
    _many_formats,
    _claim,
]
lines_of_play = st.lists(
    st.tuples(st.sampled_from(TACTICS), st.sampled_from(["tool", "planner"]), st.integers(0, 99)),
    max_size=14,
)


def _first(name: str, index: int = 0) -> bytes:
    family = FAMILIES[name]
    return family.environment().reset(family.taskset().task("train", index))


@each_family
@given(index=st.integers(0, 50), play=lines_of_play)
@settings(max_examples=40)
def test_return_when_any_tactics_are_mixed_then_is_what_was_earned_and_within_the_bounds(
    name: str, index: int, play: list[tuple[Tactic, str, int]]
) -> None:
    family = FAMILIES[name]
    env, state = family.environment(), _first(name, index)
    team_return, was_solved = 0.0, False
    own = {"tool": 0.0, "planner": 0.0}
    for tactic, agent, seed in play:
        done = env.step(state, agent, tactic(name, state, agent, Random(seed)))
        assert done.team_reward == 0.0 or (agent == "planner" and not was_solved)
        weights = family.local_terms[agent]
        own[agent] += sum(weights[term] * value for term, value in done.local_rewards.items())
        team_return += done.team_reward
        was_solved = was_solved or done.success
        state = done.state
    after = decode_state(state)
    way = (after.first - after.best) / after.first
    assert team_return == pytest.approx(way / 2 + was_solved / 2)
    assert team_return <= family.return_bound + 1e-9
    assert was_solved or team_return < 0.5
    # No way of playing beats solving at once, which pays 1 to the team and 0.8 to each agent.
    assert max(own.values()) <= 0.8 + 1e-9


@each_family
def test_return_when_the_first_plan_solves_then_is_the_most_that_there_is(name: str) -> None:
    family = _family(name, max_actions=36)
    env = family.environment()
    state = env.reset(family.taskset().task("train", 0))
    for agent in family.agents:
        done = env.step(state, agent, family.demonstrate(state, agent, Random(0)))
        state = done.state
        assert done.local_rewards == {"format": 0.0, "legal": 0.0, "progress": 1.0}
    assert (done.team_reward, done.success) == (family.return_bound, True)


@each_family
def test_progress_when_the_tool_tries_the_same_again_then_is_paid_once(name: str) -> None:
    family, env, state = FAMILIES[name], FAMILIES[name].environment(), _first(name)
    paid = []
    for _ in range(3):
        done = env.step(state, "tool", family.demonstrate(state, "tool", Random(0)))
        state = done.state
        paid.append(done.local_rewards["progress"])
    assert paid[0] >= 0.0
    assert paid[1:] == [0.0, 0.0]


@each_family
def test_return_when_the_good_answer_is_done_and_undone_then_nothing_is_paid_twice(
    name: str,
) -> None:
    env, state = FAMILIES[name].environment(), _first(name)
    rng, rewards = Random(0), []
    for _ in range(60):
        done = env.step(state, "planner", _wander(name, state, "planner", rng))
        state = done.state
        rewards.append(done.team_reward)
    assert sum(rewards) <= FAMILIES[name].return_bound
    assert sum(reward > 0 for reward in rewards) <= decode_state(state).first


@each_family
@pytest.mark.parametrize("tactic", [_empty, _claim, _echo_prompt])
def test_return_when_nothing_is_answered_then_is_nothing(name: str, tactic: Tactic) -> None:
    env = FAMILIES[name].environment()
    for index in range(20):
        state = _first(name, index)
        if tactic is _echo_prompt:
            action = env.observe(state, "planner")[0].content
        else:
            action = tactic(name, state, "planner", Random(index))
        done = env.step(state, "planner", action)
        assert (done.team_reward, done.success) == (0.0, False)
        assert done.local_rewards == {"format": -1.0, "legal": 0.0, "progress": 0.0}


@each_family
def test_return_when_the_prompts_example_is_echoed_then_is_nothing_or_little_luck(
    name: str,
) -> None:
    env = FAMILIES[name].environment()
    for agent, example in zip(("tool", "planner"), EXAMPLES[name], strict=True):
        rules = VERBOSE[name].observe(_first(name), agent)[0].content
        assert rules.endswith(f": {example}")
    team_return = 0.0
    for index in range(100):
        done = env.step(_first(name, index), "planner", EXAMPLES[name][1])
        assert not done.success
        team_return += done.team_reward
    # Sokoban's example is of real moves; elsewhere it names nothing that is there.
    assert team_return / 100 < (0.1 if name == "sokoban" else 1e-9)


@each_family
@given(index=st.integers(0, 50), play=lines_of_play)
@settings(max_examples=15)
def test_step_when_replayed_or_forked_then_gives_equal_results(
    name: str, index: int, play: list[tuple[Tactic, str, int]]
) -> None:
    env, other = FAMILIES[name].environment(), _family(name).environment()
    state = _first(name, index)
    for tactic, agent, seed in play:
        action = tactic(name, state, agent, Random(seed))
        done = env.step(state, agent, action)
        env.step(state, agent, _wander(name, state, agent, Random(seed + 1)))
        assert env.step(bytes(state), agent, action) == done == other.step(state, agent, action)
        assert encode_state(decode_state(done.state)) == done.state
        json.dumps(dict(done.info))
        state = done.state


@each_family
@given(text=st.text(max_size=80), agent=st.sampled_from(["tool", "planner"]))
@settings(max_examples=50)
def test_step_when_the_text_is_anything_then_never_fails(name: str, text: str, agent: str) -> None:
    keyword = EXAMPLES[name][agent == "planner"].split(" ")[0]
    env = FAMILIES[name].environment()
    for action in (text, f"{keyword} {text}"):
        assert env.observe(env.step(_first(name), agent, action).state, agent)


@each_family
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("team", [("tool", "planner"), ("planner",)])
def test_demonstrate_when_followed_then_every_task_is_solved(
    name: str, split: Split, team: tuple[str, ...]
) -> None:
    family, rng = FAMILIES[name], Random(0)
    env, solved = family.environment(), 0
    for index in range(20):
        state = env.reset(family.taskset().task(split, index))
        for agent in team * 12:
            done = env.step(state, agent, family.demonstrate(state, agent, rng))
            assert done.local_rewards["format"] == 0.0
            state = done.state
            if done.done:
                solved += done.success
                break
    assert solved == 20


@each_family
def test_demonstrate_when_the_tool_tried_a_good_answer_then_the_planner_repeats_it(
    name: str,
) -> None:
    family, env, state = FAMILIES[name], FAMILIES[name].environment(), _first(name)
    tried = family.demonstrate(state, "tool", Random(0))
    after = env.step(state, "tool", tried).state
    assert family.demonstrate(after, "planner", Random(0)).split(" ")[1:] == tried.split(" ")[1:]


@each_family
def test_observe_when_the_tool_has_tried_then_only_the_planner_sees_it(name: str) -> None:
    family, env, state = FAMILIES[name], FAMILIES[name].environment(), _first(name)
    before = env.observe(state, "planner")[0].content
    tried = env.step(state, "tool", family.demonstrate(state, "tool", Random(0)))
    assert (tried.team_reward, tried.done) == (0.0, False)
    assert decode_state(tried.state).board == decode_state(state).board
    assert env.observe(tried.state, "tool") == env.observe(state, "tool")
    assert " tried " in env.observe(tried.state, "planner")[0].content
    garbage = env.step(state, "tool", "let me see")
    assert "tried nothing planner" in env.observe(garbage.state, "planner")[0].content
    played = env.step(tried.state, "planner", "no idea")
    assert env.observe(played.state, "planner")[0].content == before


@each_family
def test_observe_when_verbose_then_explains_the_rules_and_shows_the_trial(name: str) -> None:
    env, state = VERBOSE[name], _first(name)
    state = env.step(state, "tool", FAMILIES[name].demonstrate(state, "tool", Random(0))).state
    system, user = env.observe(state, "planner")
    assert (system.role, user.role) == ("system", "user")
    assert f"at most {PARAMS[name].max_actions} " in system.content
    assert "(none refused)" in user.content.splitlines()[-1]
    unread = env.step(state, "tool", "hm").state
    assert "the tool call could not be read." in env.observe(unread, "planner")[1].content


@each_family
def test_vocabulary_when_prompts_and_answers_are_split_then_knows_each_word(name: str) -> None:
    family, rng = FAMILIES[name], Random(0)
    env, known = family.environment(), set(family.vocabulary())
    assert len(known) == len(family.vocabulary())
    for index in range(30):
        state = _first(name, index)
        for turn in range(4):
            for agent in family.agents:
                act = family.random_action if turn % 2 == 0 else family.demonstrate
                action = act(state, agent, rng)
                prompt = env.observe(state, agent)[0].content
                assert set(f"{prompt} {action}".split()) <= known
                state = env.step(state, agent, action).state


@pytest.mark.parametrize("name", LARGEST)
def test_state_when_the_instance_is_the_largest_then_is_below_four_kib(name: str) -> None:
    family = LARGEST[name]
    env = family.environment()
    state = env.reset(family.taskset().task("train", 0))
    for agent in ("planner", "tool"):
        state = env.step(state, agent, family.random_action(state, agent, Random(0))).state
        assert len(state) < 4096


@each_family
def test_step_when_the_puzzle_is_over_then_nothing_changes_or_pays_any_more(name: str) -> None:
    env, state, rng = FAMILIES[name].environment(), _first(name), Random(0)
    while not (done := env.step(state, "planner", _demonstrate(name, state, "planner", rng))).done:
        state = done.state
    again = env.step(done.state, "planner", _wander(name, done.state, "planner", rng))
    assert (again.state, again.team_reward, again.done, again.success) == (
        done.state,
        0.0,
        True,
        True,
    )
    assert again.local_rewards["progress"] == again.local_rewards["legal"] == 0.0


@each_family
def test_agents_when_unknown_then_are_refused_by_name(name: str) -> None:
    env = FAMILIES[name].environment()
    with pytest.raises(InvalidArgumentError, match="judge"):
        env.step(_first(name), "judge", "plan")
    with pytest.raises(InvalidArgumentError, match="tool, planner"):
        env.observe(_first(name), "judge")


@each_family
def test_reset_when_the_task_is_solved_already_then_is_refused(name: str) -> None:
    solved = {
        "sokoban": "####/#@*#/#--#/####",
        "sudoku": "1234341221434321/1234341221434321",
        "eight_queens": "bdac/",
        "blocksworld": "ab/c>ab/c",
    }
    task = Task("made by hand", "train", 0, solved[name].encode())
    with pytest.raises(InvalidArgumentError, match="made by hand"):
        FAMILIES[name].environment().reset(task)


@each_family
def test_task_when_the_seed_differs_then_differs_and_the_order_of_asking_does_not_matter(
    name: str,
) -> None:
    taskset = FAMILIES[name].taskset()
    forward = [taskset.task("test", index) for index in range(10)]
    assert [taskset.task("test", index) for index in reversed(range(10))] == forward[::-1]
    other = _family(name, seed=1).taskset()
    assert [other.task("test", index).payload for index in range(10)] != [
        t.payload for t in forward
    ]


@pytest.mark.parametrize(
    ("text", "actions", "is_well_formed"),
    [
        ("plan b4 c1", ("b4", "c1"), True),
        ("I think so.\nplan: [b4, c1]", ("b4", "c1"), True),
        ("plan b4\nno, plan c1", ("c1",), True),
        ("Plan: b4, c1", ("b4", "c1"), True),
        ("PLAN b4", ("b4",), True),
        ("plan a1\nPlan: b4", ("a1",), False),
        ("Plan b4\nplan c1", ("c1",), True),
        ("plan b4 plan", ("b4",), False),
        ("plan b4\nThis plan is a good one.", ("b4",), False),
        ("plan b4\nPlan done", ("b4",), False),
        ("plan b4, c1. Plan d4 would be attacked.", ("b4", "c1"), False),
        ("This plan is good.\nPlan: b4", ("b4",), True),
        ("Plan: B4", (), False),
        ("Planner b4", (), False),
        ("plan b4 then stop", ("b4",), False),
        ("plan a1 b1 c1 d1", ("a1", "b1", "c1"), False),
        ("plan b44x", (), False),
        ("planner b4", (), False),
        ("try b4", (), False),
        ("plan", (), False),
        ("", (), False),
    ],
)
def test_read_answer_on_each_shape_then_reads_actions_and_form(
    text: str, actions: tuple[str, ...], is_well_formed: bool
) -> None:
    answer = read_answer("plan", r"([a-l]\d\d?)", text, 3)
    assert (answer.actions, answer.is_well_formed) == (actions, is_well_formed)


@each_family
def test_step_when_the_answer_is_a_megabyte_then_at_most_the_limit_is_done(name: str) -> None:
    family, state = FAMILIES[name], _first(name)
    keyword, *words = family.random_action(state, "planner", Random(0)).split(" ")
    long = " ".join([keyword, *words * (1_000_000 // len(" ".join(words)))])
    done = family.environment().step(state, "planner", long)
    assert len(done.info["actions"]) == PARAMS[name].max_actions
    assert done.local_rewards["format"] == -1.0
    assert len(done.state) < 4096
