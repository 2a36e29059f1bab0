"""Prompts of a puzzle in both styles: the position, then the result of the tool's trial."""

from collections.abc import Sequence

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
            facts += trial_facts(trial, puzzle.outcome(state.instance, trial.played))
        return (Message("user", " ".join((*facts, agent))),)
    lines = [*puzzle.sentences(state.instance, state.board)]
    if trial:
        outcome = puzzle.outcome_sentence(state.instance, trial.played)
        lines.append(trial_sentence(trial, outcome))
    return Message("system", puzzle.rules(agent, limit)), Message("user", "\n".join(lines))


def trial_facts(trial: Trial, outcome: Sequence[str]) -> list[str]:
    """The tool's trial in the compact style; ``outcome`` is what it led to."""
    if not trial.actions:
        return ["tried", "nothing"]
    legality = ["refused", str(trial.refused[0])] if trial.refused else ["clear"]
    return ["tried", *trial.actions, *legality, *outcome]


def trial_sentence(trial: Trial, outcome: str) -> str:
    """The tool's trial in the verbose style; ``outcome`` is what it led to."""
    if not trial.actions:
        return "Tool result: the tool call could not be read."
    refused = ", ".join(str(number) for number in trial.refused)
    legality = f"refused, counted from 1: {refused}" if trial.refused else "none refused"
    return f"Tool result: {', '.join(trial.actions)} ({legality}). {outcome}"
