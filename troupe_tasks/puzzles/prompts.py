"""Prompts of a puzzle in both styles: the position, then the result of the tool's trial."""

from troupe.tasks.family import Message, Observation
from troupe_tasks.puzzles.puzzle import PLANNER, TOOL, Puzzle, Style
from troupe_tasks.puzzles.state import State, Trial

WORDS = (TOOL, PLANNER, "tried", "nothing", "clear", "refused")
"""Words of the compact style that all puzzles share."""


def observation(puzzle: Puzzle, state: State, agent: str, style: Style, limit: int) -> Observation:
    """The prompt of ``agent``; only the planner sees the tool's trial."""
    trial = state.trial if agent == PLANNER else None
    if style == "compact":
        facts = [*puzzle.facts(state.instance, state.board)]
        if trial:
            facts += _trial_facts(puzzle, state, trial)
        return (Message("user", " ".join((*facts, agent))),)
    lines = [*puzzle.sentences(state.instance, state.board)]
    if trial:
        lines.append(f"Tool result: {_trial_sentence(puzzle, state, trial)}")
    return Message("system", puzzle.rules(agent, limit)), Message("user", "\n".join(lines))


def _trial_facts(puzzle: Puzzle, state: State, trial: Trial) -> list[str]:
    if not trial.actions:
        return ["tried", "nothing"]
    legality = ["refused", str(trial.refused[0])] if trial.refused else ["clear"]
    return ["tried", *trial.actions, *legality, *puzzle.outcome(state.instance, trial.played)]


def _trial_sentence(puzzle: Puzzle, state: State, trial: Trial) -> str:
    if not trial.actions:
        return "the tool call could not be read."
    refused = ", ".join(str(number) for number in trial.refused)
    legality = f"refused, counted from 1: {refused}" if trial.refused else "none refused"
    outcome = puzzle.outcome_sentence(state.instance, trial.played)
    return f"{', '.join(trial.actions)} ({legality}). {outcome}"
