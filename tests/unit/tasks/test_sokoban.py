"""Sokoban's rules, its signs of a lost room, its solver and its tasks, by hand and by search."""

import math
from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from troupe.errors import InvalidArgumentError
from troupe.tasks.family import SPLITS, Split, Task
from troupe_tasks.sokoban import Sokoban, SokobanParams
from troupe_tasks.sokoban.deadlock import pushes_left
from troupe_tasks.sokoban.generator import draw, pulled, split_of
from troupe_tasks.sokoban.room import (
    MOVES,
    Position,
    Room,
    cells,
    moved,
    name,
    read_map,
    write_map,
)
from troupe_tasks.sokoban.solver import solution

FAMILY = Sokoban(SokobanParams(max_actions=6))
ENV = FAMILY.environment()

# The player at b2, the box at c2, two pushes from the goal at e2; a wall at d4.
ROW = "######/#@$-.#/#----#/#--#-#/#----#/######"


def _state(board: str) -> bytes:
    return ENV.reset(Task("by hand", "train", 0, board.encode()))


def _left(board: str) -> int | None:
    room, position = read_map(board)
    return pushes_left(room, position.boxes)


def test_observe_at_first_then_names_walls_goals_boxes_and_moves() -> None:
    (message,) = ENV.observe(_state(ROW), "planner")
    assert message.content == "walls d4 goals e2 boxes c2 at b2 open D push R planner"


def test_observe_when_moves_were_tried_then_says_where_they_end() -> None:
    tried = ENV.step(_state(ROW), "tool", "simulate U R D").state
    assert ENV.observe(tried, "planner")[0].content == (
        "walls d4 goals e2 boxes c2 at b2 open D push R "
        "tried U R D refused 1 ends c3 boxes d2 planner"
    )


def test_observe_when_the_tried_moves_lose_the_room_then_says_so() -> None:
    state = _state("######/#----#/#.@$-#/#----#/#----#/######")
    harmless = ENV.step(state, "tool", "simulate U")
    assert "lost" not in ENV.observe(harmless.state, "planner")[0].content
    lost = ENV.step(state, "tool", "simulate R")
    assert ENV.observe(lost.state, "planner")[0].content.endswith("boxes e3 lost planner")
    assert (lost.done, lost.local_rewards["progress"]) == (False, -1.0)


def test_step_when_half_the_pushes_are_made_then_pays_a_quarter_and_then_the_rest() -> None:
    half = ENV.step(_state(ROW), "planner", "plan R")
    assert half.team_reward == 0.25
    assert half.local_rewards == {"format": 0.0, "legal": 0.0, "progress": 0.5}
    whole = ENV.step(half.state, "planner", "plan R")
    assert (whole.team_reward, whole.done, whole.success) == (0.75, True, True)
    assert whole.info["board"].splitlines()[1] == "# - - @ * #"


def test_step_when_a_box_is_pushed_into_a_corner_then_the_episode_ends_unpaid() -> None:
    lost = ENV.step(_state(ROW), "planner", "plan D R R U L")
    assert lost.info["refused"] == []
    assert lost.info["board"].splitlines()[1] == "# $ @ - . #"
    assert (lost.done, lost.success, lost.team_reward) == (True, False, 0.0)
    assert lost.local_rewards == {"format": 0.0, "legal": 0.0, "progress": -1.0}
    again = ENV.step(lost.state, "planner", "plan D")
    assert (again.done, again.team_reward, again.local_rewards["progress"]) == (True, 0.0, 0.0)


def test_step_when_a_box_leaves_its_goal_and_comes_back_then_is_paid_once() -> None:
    state = _state("#######/#-----#/#-.$@-#/#-----#/#.$---#/#-----#/#######")
    rewards, progress = [], []
    for plan in ("plan L", "plan U L L D R", "plan U R R D L", "plan U L L D R"):
        done = ENV.step(state, "planner", plan)
        assert done.info["refused"] == []
        rewards.append(done.team_reward)
        progress.append(done.local_rewards["progress"])
        state = done.state
    assert rewards == [0.25, 0.0, 0.0, 0.0]
    assert progress == [0.5, -0.5, 0.5, -0.5]


def test_moved_when_two_boxes_stand_in_a_row_then_neither_is_pushed() -> None:
    room, position = read_map("######/#@$$.#/#---.#/#----#/#----#/######")
    assert moved(room, position, "R") is None
    assert moved(room, position, "U") is None
    assert moved(room, position, "D") == Position(position.boxes, position.player + 6)


@pytest.mark.parametrize(
    ("board", "left"),
    [
        ("######/#@$-.#/#----#/#----#/#----#/######", 2),
        ("######/#.--.#/#-$$-#/#-@--#/#----#/######", 4),
        # In a corner.
        ("######/#$-.-#/#-@--#/#----#/#----#/######", None),
        # Against a wall that has no goal.
        ("######/#-$--#/#-@--#/#-.--#/#----#/######", None),
        # Side by side along a wall: neither can ever move.
        ("######/#.$$.#/#-@--#/#----#/#----#/######", None),
        # Four boxes in a block.
        ("######/#....#/#-$$-#/#-$$-#/#@---#/######", None),
        # Two boxes on the wall of one goal, the other goal elsewhere.
        ("######/#$-.-#/#-@--#/#$.--#/#----#/######", None),
        # The same block on its goals is no loss.
        ("######/#----#/#-**-#/#-**-#/#@---#/######", 0),
    ],
)
def test_pushes_left_on_each_shape_then_is_the_hand_count(board: str, left: int | None) -> None:
    assert _left(board) == left


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_pushes_left_on_random_positions_then_is_a_lower_bound_and_never_wrongly_lost(
    seed: int,
) -> None:
    rng = Random(seed)
    room = _room(rng, num_boxes=rng.choice((1, 2)))
    least = _least_pushes_by_search(room)
    for boxes in {boxes for boxes, _ in least}:
        true = min(pushes for (b, _), pushes in least.items() if b == boxes)
        left = pushes_left(room, boxes)
        assert left is not None
        assert left <= true


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_pulled_positions_then_their_depth_is_the_least_pushes_of_a_forward_search(
    seed: int,
) -> None:
    rng = Random(seed)
    room = _room(rng, num_boxes=rng.choice((1, 2)))
    least = _least_pushes_by_search(room)
    found = {
        (boxes, player): pushes for boxes, area, pushes in pulled(room) for player in cells(area)
    }
    assert found == least


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_solution_when_played_then_solves_with_the_least_pushes(seed: int, num_boxes: int) -> None:
    rng = Random(seed)
    room = _room(rng, num_boxes)
    boxes, area, pushes = rng.choice(list(pulled(room)))
    start = Position(boxes, rng.choice(list(cells(area))))
    moves = solution(write_map(room, start))
    assert moves is not None
    position, made = start, 0
    for move in moves:
        after = moved(room, position, move)
        assert after is not None
        made += after.boxes != position.boxes
        position = after
    assert position.boxes == room.goals
    assert made == pushes


def test_solution_when_equal_pushes_are_possible_then_takes_the_fewest_moves() -> None:
    assert solution("######/#@$-.#/#----#/#----#/#----#/######") == "RR"
    assert solution("######/#-$-.#/#-@--#/#----#/#----#/######") == "LURR"


def test_solution_when_there_is_none_then_says_so() -> None:
    # One box, walled off from its goal by a cell that only it could pass.
    assert solution("######/#@--##/#-$-.#/#--###/#----#/######") == "DRR"
    assert solution("######/#@-#.#/#-$-##/#----#/#----#/######") is None


def test_read_map_of_write_map_then_is_the_same() -> None:
    for index in range(20):
        board = FAMILY.taskset().task("train", index).payload.decode()
        assert write_map(*read_map(board)) == board
    assert name(6, 7) == "b2"


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("seed", [0, 1])
def test_task_whatever_the_seed_then_its_room_is_its_splits_and_far_enough(
    split: Split, seed: int
) -> None:
    taskset = Sokoban(SokobanParams(seed=seed, boxes=2, min_pushes=5)).taskset()
    for index in range(40):
        board = taskset.task(split, index).payload.decode()
        room, position = read_map(board)
        assert split_of(room) == split
        assert room.goals.bit_count() == position.boxes.bit_count() == 2
        moves = solution(board)
        assert moves is not None
        assert len(moves) >= 5


@given(st.integers(0, 1000), st.integers(0, 3), st.booleans())
def test_split_of_when_a_room_is_turned_or_mirrored_then_is_the_same(
    seed: int, quarter_turns: int, is_mirrored: bool
) -> None:
    room = _room(Random(seed), 2)
    rows = write_map(room, Position(0, -1)).split("/")
    rows = rows[::-1] if is_mirrored else rows
    for _ in range(quarter_turns):
        rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]
    turned, _ = read_map("/".join(rows))
    assert split_of(turned) == split_of(room)


def test_draw_when_the_room_is_too_rich_to_search_then_is_far_by_the_lower_bound() -> None:
    rng, num_drawn = Random(0), 0
    while num_drawn < 3:
        board = draw(rng, "train", size=10, num_boxes=4, wall_share=0.2, min_pushes=16)
        if board is None:
            continue
        left = _left(board)
        assert left is not None
        assert left >= 16
        moves = solution(board)
        assert moves is not None
        position, room = read_map(board)[1], read_map(board)[0]
        for move in moves:
            position = moved(room, position, move) or position
        assert position.boxes == room.goals
        num_drawn += 1


def test_task_when_the_parameters_cannot_be_met_then_says_what_to_change() -> None:
    taskset = Sokoban(SokobanParams(wall_share=0.5, boxes=6)).taskset()
    with pytest.raises(InvalidArgumentError, match="use fewer boxes"):
        taskset.task("train", 0)


def test_random_play_when_counted_then_solves_as_often_as_the_walk_of_the_player_says() -> None:
    state, num_plays, rng = _state(ROW), 2000, Random(0)
    solved = 0
    for _ in range(num_plays):
        action = FAMILY.random_action(state, "planner", rng)
        solved += ENV.step(state, "planner", action).success
    expected = _chance_of_random_moves(ROW, 6)
    assert 0.1 < expected < 0.3
    assert solved / num_plays == pytest.approx(expected, abs=4 * _spread(expected, num_plays))


def test_random_play_on_test_tasks_then_solves_as_many_as_recorded() -> None:
    family, rng, solved = Sokoban(SokobanParams()), Random(0), 0
    env = family.environment()
    for index in range(300):
        state = env.reset(family.taskset().task("test", index))
        for _ in range(4):
            done = env.step(state, "planner", family.random_action(state, "planner", rng))
            state = done.state
            if done.done:
                break
        solved += done.success
    assert solved / 300 == pytest.approx(RANDOM_FLOOR, abs=4 * _spread(RANDOM_FLOOR, 300))


RANDOM_FLOOR = 0.114
"""Share of the default test tasks 0-3999 that random play solves in 4 turns (docs/tasks)."""


def _spread(share: float, num: int) -> float:
    return math.sqrt(share * (1 - share) / num)


def _room(rng: Random, num_boxes: int) -> Room:
    while True:
        board = draw(
            rng, rng.choice(SPLITS), size=6, num_boxes=num_boxes, wall_share=0.2, min_pushes=1
        )
        if board is not None:
            return read_map(board)[0]


def _least_pushes_by_search(room: Room) -> dict[tuple[int, int], int]:
    """Least pushes of every solvable position: relaxed over all forward moves to a fixed point."""
    floor = list(cells(room.floor))
    num_boxes = room.goals.bit_count()
    edges: dict[Position, list[tuple[Position, int]]] = {}
    pending = deque(
        Position(boxes, player)
        for boxes in _subsets(floor, num_boxes)
        for player in floor
        if not boxes >> player & 1
    )
    into: dict[Position, list[tuple[Position, int]]] = {}
    for position in pending:
        edges[position] = []
        for move in MOVES:
            after = moved(room, position, move)
            if after is not None:
                into.setdefault(after, []).append((position, int(after.boxes != position.boxes)))
    least = {position: 0 for position in edges if position.boxes == room.goals}
    queue = deque(least)
    while queue:
        here = queue.popleft()
        for before, cost in into.get(here, []):
            if least[here] + cost < least.get(before, 10**9):
                least[before] = least[here] + cost
                queue.append(before)
    return {(position.boxes, position.player): pushes for position, pushes in least.items()}


def _subsets(floor: list[int], num: int) -> list[int]:
    if num == 1:
        return [1 << cell for cell in floor]
    return [1 << a | 1 << b for i, a in enumerate(floor) for b in floor[i + 1 :]]


def _chance_of_random_moves(board: str, num_moves: int) -> float:
    """Exact chance that ``num_moves`` uniform moves solve the room: a walk over positions."""
    room, start = read_map(board)
    chances, solved = {start: 1.0}, 0.0
    for _ in range(num_moves):
        after: dict[Position, float] = {}
        for position, chance in chances.items():
            for move in MOVES:
                there = moved(room, position, move) or position
                if there.boxes == room.goals:
                    solved += chance / 4
                else:
                    after[there] = after.get(there, 0.0) + chance / 4
        chances = after
    return solved
