"""The scripted agents of all puzzles: they follow a solution, and use the tool's trial if good."""

from collections.abc import Callable, Sequence

from troupe_tasks.puzzles.answers import write_answer
from troupe_tasks.puzzles.puzzle import PLANNER, Puzzle
from troupe_tasks.puzzles.state import State


def demonstrate(
    puzzle: Puzzle,
    state: State,
    agent: str,
    solution: Callable[[str], Sequence[str]],
    max_actions: int,
) -> str:
    """The first actions of ``solution(board)``; the planner keeps a trial that is as good.

    A trial is as good when each of its actions shortens the solution by one.
    """
    best = solution(state.board)
    trial = state.trial
    if agent == PLANNER and trial and trial.actions and not trial.refused:
        saved = len(best) - len(solution(trial.board))
        if saved == len(trial.actions) and puzzle.distance(state.instance, trial.board) is not None:
            return write_answer(puzzle.keywords[agent], trial.actions)
    return write_answer(puzzle.keywords[agent], best[:max_actions])
