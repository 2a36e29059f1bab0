"""Where each robot may take hold of what."""

from troupe_tasks.carry.physics import View
from troupe_tasks.carry.scenes import ALICE, BOB, PAD, Point, Scene

_BAR_GRIP = 35
"""Centimetres from a bar's middle to where it is gripped."""
LID_GRIP_X = -30
_LID_HALF_HEIGHT = 1


def grip_point(scene: Scene, seen: View, agent: str) -> Point | None:
    """Where the gripper of ``agent`` touches what it may hold now; None when out of its reach."""
    x, y, z = seen.centre
    top = z + scene.object[2] + PAD[2]
    if scene.kind == "lid" and agent == ALICE:
        assert seen.lid is not None
        return (LID_GRIP_X, scene.start[1], seen.lid + _LID_HALF_HEIGHT + PAD[2])
    if scene.kind == "lift":
        end = min(seen.ends) if agent == ALICE else max(seen.ends)
        share = _BAR_GRIP / scene.object[0]
        return (x + share * (end[0] - x), y + share * (end[1] - y), top)
    if scene.kind == "hand_over":
        least, most = scene.reach[agent]
        nearest = min(max(x, least), most)
        return (nearest, y, top) if abs(nearest - x) < scene.object[0] + PAD[0] - 1 else None
    return (x, y, top) if agent == BOB else None
