"""Blocksworld's one rule, its shortest plans against plain search, and its tasks."""

import itertools
import math
from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task
from troupe_tasks.blocksworld import Blocksworld, BlocksworldParams
from troupe_tasks.blocksworld.generator import split_of, unnamed
from troupe_tasks.blocksworld.puzzle import BlocksworldPuzzle
from troupe_tasks.blocksworld.stacks import (
    TABLE,
    Move,
    in_place,
    moved,
    shortest_plan,
    supports,
    world_of,
)
from troupe_tasks.puzzles.answers import read_answer

FAMILY = Blocksworld(BlocksworldParams(size=3, max_actions=3))
ENV = FAMILY.environment()

# Sussman's anomaly: c on a, b alone; wanted a on b on c.
SUSSMAN = "ac/b>cba"
TASK = Task("by hand", "train", 0, SUSSMAN.encode())


def test_observe_at_first_then_names_both_worlds() -> None:
    (message,) = ENV.observe(ENV.reset(TASK), "planner")
    assert message.content == "now stack a c stack b goal stack c b a planner"


def test_observe_when_moves_were_tried_then_shows_the_world_they_lead_to() -> None:
    state = ENV.step(ENV.reset(TASK), "tool", "simulate c table a c b a").state
    assert ENV.observe(state, "planner")[0].content.endswith(
        "tried c table a c b a clear now stack c a b planner"
    )


def test_observe_when_verbose_then_lists_stacks_from_the_table_up() -> None:
    env = Blocksworld(BlocksworldParams(style="verbose")).environment()
    _, user = env.observe(env.reset(TASK), "planner")
    assert user.content == (
        "Stacks now, each from the table up: a c; b\nStacks in the goal: c b a\nClear blocks: c, b"
    )


def test_step_when_one_of_three_moves_is_made_then_pays_a_third_and_the_goal_pays_the_rest() -> (
    None
):
    first = ENV.step(ENV.reset(TASK), "planner", "plan c table")
    assert first.team_reward == pytest.approx(1 / 6)
    assert first.local_rewards == {"format": 0.0, "legal": 0.0, "progress": pytest.approx(1 / 3)}
    last = ENV.step(first.state, "planner", "plan b on c, a -> b")
    assert last.team_reward == pytest.approx(5 / 6)
    assert last.done
    assert last.success


def test_step_when_a_move_undoes_what_was_done_then_costs_and_is_not_paid_again() -> None:
    state = ENV.reset(TASK)
    rewards, progress = [], []
    for plan in ("plan c table", "plan c a", "plan c table", "plan b a", "plan b table"):
        done = ENV.step(state, "planner", plan)
        rewards.append(done.team_reward)
        progress.append(done.local_rewards["progress"])
        state = done.state
    assert rewards == pytest.approx([1 / 6, 0, 0, 0, 0])
    assert progress == pytest.approx([1 / 3, -1 / 3, 1 / 3, 0, 0])


def test_step_when_moves_are_illegal_then_are_refused_and_named() -> None:
    done = ENV.step(ENV.reset(TASK), "planner", "plan a table b c b table")
    assert done.info["refused"] == [1]
    assert done.info["actions"] == ["a table", "b c", "b table"]
    assert done.local_rewards["legal"] == -1.0


@pytest.mark.parametrize(
    ("move", "after"),
    [
        (("c", TABLE), "a/b/c"),
        (("c", "b"), "a/bc"),
        (("b", "c"), "acb"),
        (("a", TABLE), None),
        (("a", "b"), None),
        (("b", "a"), None),
        (("b", TABLE), None),
        (("b", "b"), None),
        (("d", TABLE), None),
        (("b", "d"), None),
    ],
)
def test_moved_on_each_kind_of_move_then_allows_clear_blocks_only(
    move: Move, after: str | None
) -> None:
    assert moved("ac/b", move) == after


def test_shortest_plan_of_sussmans_anomaly_then_takes_three_moves() -> None:
    assert shortest_plan("ac/b", "cba") == (("c", TABLE), ("b", "c"), ("a", "b"))
    assert in_place("a/b/c", "cba") == {"c"}


@pytest.mark.parametrize(("size", "num_worlds"), [(3, 13), (4, 73), (5, 501)])
def test_shortest_plan_from_every_world_then_is_as_short_as_plain_search_says(
    size: int, num_worlds: int
) -> None:
    goals = ["abcde"[:size], "/".join("abcde"[:size]), world_of(["ab", "c", "ed"][: size - 1])]
    for goal in [goal for goal in goals if len(supports(goal)) == size]:
        least = _by_plain_search(goal)
        assert len(least) == num_worlds
        for world, num_moves in least.items():
            plan = shortest_plan(world, goal)
            assert len(plan) == num_moves
            for move in plan:
                after = moved(world, move)
                assert after is not None
                world = after
            assert world == goal


@settings(max_examples=8)
@given(st.integers(0, 1000))
def test_shortest_plan_between_random_worlds_then_is_as_short_as_plain_search_says(
    seed: int,
) -> None:
    task = Blocksworld(BlocksworldParams(size=5, min_moves=4)).taskset().task("train", seed)
    first, _, goal = task.payload.decode().partition(">")
    assert len(shortest_plan(first, goal)) == _by_plain_search(goal)[first] >= 4


@settings(max_examples=30)
@given(st.integers(0, 100), st.permutations("abcdef"))
def test_split_of_when_blocks_are_renamed_then_is_the_same(index: int, names: list[str]) -> None:
    task = Blocksworld(BlocksworldParams(size=6)).taskset().task("train", index)
    renamed = str.maketrans("abcdef", "".join(names))
    first, _, goal = task.payload.decode().partition(">")
    twin = [world_of(world.translate(renamed).split("/")) for world in (first, goal)]
    assert unnamed(*twin) == unnamed(first, goal)
    assert split_of(*twin) == "train"


def test_unnamed_when_tasks_differ_then_differs() -> None:
    texts = {unnamed(*pair) for pair in itertools.product(["abc", "ab/c", "a/b/c"], repeat=2)}
    assert len(texts) == 9
    assert unnamed("ab/c", "ab/c") != unnamed("ab/c", "ba/c")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("seed", [0, 1])
def test_task_whatever_the_seed_then_is_its_splits_and_far_enough(split: Split, seed: int) -> None:
    taskset = Blocksworld(BlocksworldParams(seed=seed, size=6, min_moves=5)).taskset()
    for index in range(50):
        first, _, goal = taskset.task(split, index).payload.decode().partition(">")
        assert split_of(first, goal) == split
        assert set(supports(first)) == set(supports(goal)) == set("abcdef")
        assert len(shortest_plan(first, goal)) >= 5


def test_task_when_the_parameters_cannot_be_met_then_says_what_to_change() -> None:
    taskset = Blocksworld(BlocksworldParams(size=3, min_moves=20)).taskset()
    with pytest.raises(InvalidArgumentError, match="min_moves"):
        taskset.task("train", 0)


def test_demonstrate_with_twelve_blocks_then_solves() -> None:
    family, rng = Blocksworld(BlocksworldParams(size=12, min_moves=12, max_actions=6)), Random(0)
    env = family.environment()
    for index in range(10):
        state = env.reset(family.taskset().task("test", index))
        for _ in range(4):
            done = env.step(state, "planner", family.demonstrate(state, "planner", rng))
            state = done.state
        assert done.success


@pytest.mark.parametrize(
    ("text", "actions", "is_well_formed"),
    [
        ("plan c table b c", ("c table", "b c"), True),
        ("First c.\nplan: c -> table, b on c", ("c table", "b c"), True),
        ("plan [c to table; b onto c]", ("c table", "b c"), True),
        ("plan c table\nplan b c", ("b c",), True),
        ("plan c table and stop", ("c table",), False),
        ("plan a b b c c a a table", ("a b", "b c", "c a"), False),
        ("plan c", (), False),
        ("plan ab", (), False),
        ("plan a good move", (), False),
        ("simulate c table", (), False),
    ],
)
def test_read_answer_on_each_shape_then_reads_moves_and_form(
    text: str, actions: tuple[str, ...], is_well_formed: bool
) -> None:
    answer = read_answer("plan", BlocksworldPuzzle.item, text, 3)
    assert (answer.actions, answer.is_well_formed) == (actions, is_well_formed)


def test_random_play_when_counted_then_solves_as_often_as_all_answers_together_do() -> None:
    state, rng, num_plays = ENV.reset(TASK), Random(0), 4000
    solved = sum(
        ENV.step(state, "planner", FAMILY.random_action(state, "planner", rng)).success
        for _ in range(num_plays)
    )
    pairs = [(b, t) for b in "abc" for t in (*"abc", TABLE) if b != t]
    num_solving = sum(_leads_to_the_goal(plan) for plan in itertools.product(pairs, repeat=3))
    # The one shortest plan is the only one among 9^3.
    assert (len(pairs), num_solving) == (9, 1)
    chance = num_solving / 9**3
    assert solved / num_plays == pytest.approx(chance, abs=4 * math.sqrt(chance / num_plays))


def _leads_to_the_goal(plan: tuple[Move, ...]) -> bool:
    world = "ac/b"
    for move in plan:
        world = moved(world, move) or world
    return world == "cba"


def _by_plain_search(goal: str) -> dict[str, int]:
    """Least moves to ``goal`` from every world, breadth first; every move can be undone."""
    found, pending = {goal: 0}, deque([goal])
    while pending:
        world = pending.popleft()
        blocks = list(supports(world))
        for move in itertools.product(blocks, [TABLE, *blocks]):
            after = moved(world, move)
            if after is not None and after not in found:
                found[after] = found[world] + 1
                pending.append(after)
    return found
