"""A state without a seal that is larger than any task is refused before it is searched."""

import json

import pytest

from troupe.errors import InvalidArgumentError
from troupe_env.families import Families
from troupe_env.judging_pool import judged

SIDE = 16
BLOCKS = "abcdefghijklmnopqrstuvwxyz"
FLOOR = f"#{'-' * 10}#"
ROOMS = {
    "rows": "/".join(["#" * SIDE, f"#@$.{'-' * 11}#", *[f"#{'-' * 14}#"] * 13, "#" * SIDE]),
    "goals": "/".join(["#" * 12, f"#@{'.' * 9}#", f"#-{'.' * 9}#", *[FLOOR] * 8, "#" * 12]),
}
STATES = {
    "queens": ("eight_queens", f"{'.' * SIDE}/", "." * SIDE),
    "blocks": ("blocksworld", f"{BLOCKS}>{BLOCKS[::-1]}", BLOCKS),
    "blocks twice": ("blocksworld", "aab>aba", "aab"),
    "other blocks": ("blocksworld", "abc>abd", "abc"),
    **{f"room of many {name}": ("sokoban", room, room) for name, room in ROOMS.items()},
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("case", STATES)
def test_state_when_larger_than_any_task_then_refused_at_once(case: str):
    name, instance, board = STATES[case]
    state = {"instance": instance, "board": board, "first": 9, "best": 9, "tried": 9, "trial": None}
    loaded = Families(1).get(name, "{}")
    with pytest.raises(InvalidArgumentError, match="ValueError"):
        judged(loaded, json.dumps(state).encode(), b"", "planner", ["place a1"], ["planner"])
