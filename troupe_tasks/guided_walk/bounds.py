"""What one seat can reach alone, found by exhaustive search and not by training.

A *deaf* walker (no scout, or one whose words do not depend on the map) knows the goal only, and
nothing that it sees depends on its steps: its best policy is one list of steps for each goal.
A *blind* team (no walker that knows the goal, whatever the scout commands) knows map and start:
its best policy stops at one cell.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from troupe_tasks.guided_walk.maps import Walkway, goals
from troupe_tasks.plan_path.grid import Cell, Grid, distances, moved


def best_deaf_share(walkways: Iterable[Walkway], max_turns: int) -> float:
    """The largest share of ``walkways`` that any policy without the scout's knowledge solves.

    For each goal every list of at most ``max_turns - 1`` steps is tried on every walkway with that
    goal, and the best list is kept. Chosen on the walkways that it is measured on, it is an upper
    bound for them.
    """
    solved: defaultdict[Cell, Counter[str]] = defaultdict(Counter)
    count = 0
    for walkway in walkways:
        count += 1
        solved[walkway.goal].update(_arriving(walkway, max_turns - 1))
    return sum(max(lists.values()) for lists in solved.values()) / count


def best_blind_share(walkways: Iterable[Walkway], min_distance: int, max_distance: int) -> float:
    """The largest expected share that any policy without the goal solves.

    Goals are drawn evenly from the cells that may be one, whatever the map and the start show.
    """
    shares = [1 / len(goals(w.grid, w.start, min_distance, max_distance)) for w in walkways]
    return sum(shares) / len(shares)


def _arriving(walkway: Walkway, max_steps: int) -> Iterable[str]:
    """Every list of at most ``max_steps`` steps that stands at the goal after its last one."""
    to_goal = distances(walkway.grid, walkway.goal)
    walks: list[tuple[Cell, str]] = [(walkway.start, "")]
    while walks:
        cell, steps = walks.pop()
        if cell == walkway.goal:
            yield steps
        walks += [
            (after, steps + move)
            for move, after in _neighbours(walkway.grid, cell)
            if len(steps) + 1 + to_goal[after] <= max_steps
        ]


def _neighbours(grid: Grid, cell: Cell) -> list[tuple[str, Cell]]:
    return [(move, moved(cell, move)) for move in grid.exits(cell)]
