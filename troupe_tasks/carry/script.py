"""The scripted pair: each robot decides from what it sees; and random lines."""

from random import Random

from troupe_tasks.carry.commands import WAIT, Command
from troupe_tasks.carry.grasp import LID_GRIP_X, grip_point
from troupe_tasks.carry.physics import View
from troupe_tasks.carry.scenes import ALICE, BOB, HOME_Z, PAD, REACH_Y, TOP_Z, Point, Scene
from troupe_tasks.carry.state import State

_HIGH = 36
_CLOSE_CM = 1.6
_OPEN_LID = 44.0
_LID_UP = 55


def demonstration(state: State, seen: View, agent: str) -> Command:
    """The next line of ``agent``."""
    if state.scene.kind == "lid" and agent == ALICE:
        return _hold_lid(state, seen)
    if state.scene.kind == "hand_over" and agent == ALICE:
        return _give(state, seen)
    return _bring(state, seen, agent)


def random_command(scene: Scene, agent: str, rng: Random) -> Command:
    """A move within reach, a grip, or a wait."""
    choice = rng.random()
    if choice < 0.25:
        return Command(grip=rng.random() < 0.6)
    if choice < 0.3:
        return WAIT
    x, y = rng.randint(*scene.reach[agent]), rng.randint(-REACH_Y, REACH_Y)
    return Command((x, y, rng.randint(PAD[2], TOP_Z)))


def _bring(state: State, seen: View, agent: str) -> Command:
    """Take the object, carry it high, lower it on the shelf, let go and leave."""
    scene, pad = state.scene, seen.pads[agent]
    if _lies_on_shelf(scene, seen):
        return _leave(state, seen, agent)
    if scene.kind == "lid" and (seen.lid or 0.0) < _OPEN_LID:
        return WAIT
    if not state.grips[agent]:
        return _take(state, seen, agent)
    if agent not in seen.touching:
        return Command(grip=False)
    if scene.kind == "lift" and not (state.grips[ALICE] and state.grips[BOB]):
        return WAIT
    # The gripper keeps its place above the object.
    offset = (pad[0] - seen.centre[0], pad[1] - seen.centre[1])
    goal = (scene.goal[0] + offset[0], scene.goal[1] + offset[1])
    if _flat(pad, goal) <= _CLOSE_CM:
        return _move(goal[0], goal[1], scene.rest[2] + scene.object[2] + PAD[2])
    return _move(pad[0], pad[1], _HIGH) if pad[2] < _HIGH - 4 else _move(*goal, _HIGH)


def _give(state: State, seen: View) -> Command:
    """Alice brings the cube to the edge of her reach, lets go and makes room."""
    scene, pad = state.scene, seen.pads[ALICE]
    edge = scene.reach[ALICE][1]
    place = (edge, scene.start[1])
    if _flat(seen.centre, place) <= 2 * _CLOSE_CM and "floor" in seen.touching:
        return _leave(state, seen, ALICE, aside=True)
    if seen.centre[0] > edge + 2 * _CLOSE_CM:
        return WAIT
    if not state.grips[ALICE]:
        return _take(state, seen, ALICE)
    if _flat(pad, place) <= _CLOSE_CM:
        return _move(*place, 2 * scene.object[2] + PAD[2])
    return _move(pad[0], pad[1], _HIGH) if pad[2] < _HIGH - 6 else _move(*place, _HIGH)


def _hold_lid(state: State, seen: View) -> Command:
    """Alice lifts the lid and stays."""
    if not state.grips[ALICE]:
        return _take(state, seen, ALICE)
    return _move(LID_GRIP_X, state.scene.start[1], _LID_UP)


def _take(state: State, seen: View, agent: str) -> Command:
    """Go above the place, down to it, and grip."""
    pad, place = seen.pads[agent], grip_point(state.scene, seen, agent)
    if place is None or (
        state.scene.kind == "hand_over" and agent == BOB and ALICE in seen.touching
    ):
        return _move(state.scene.reach[agent][0] + 12, state.scene.start[1], HOME_Z)
    if _flat(pad, place) > _CLOSE_CM:
        under_lid = state.scene.kind == "lid" and agent == BOB
        return _move(place[0], place[1], _HIGH - 6 if under_lid else max(_HIGH, pad[2]))
    if pad[2] > place[2] + _CLOSE_CM:
        return _move(*place)
    return Command(grip=True)


def _leave(state: State, seen: View, agent: str, *, aside: bool = False) -> Command:
    if state.grips[agent]:
        return Command(grip=False)
    x, y, _ = seen.pads[agent]
    return _move(x - 25 if aside else x, y, HOME_Z)


def _lies_on_shelf(scene: Scene, seen: View) -> bool:
    return "shelf" in seen.touching and _flat(seen.centre, scene.goal) <= 2 * _CLOSE_CM


def _flat(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def _move(x: float, y: float, z: float) -> Command:
    aim: Point = (round(x), round(y), round(z))
    return Command(aim)
