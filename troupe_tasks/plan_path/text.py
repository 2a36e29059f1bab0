"""The prompts of Plan-Path: what each agent reads, and how its answer is parsed.

Two styles say the same facts. ``compact`` is one line that a tiny made-here model can learn;
``verbose`` explains the rules to a general instruction-tuned model. Walls come first and do not
change, so all prompts of one episode share a prefix.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from troupe.tasks.family import Message, Observation
from troupe_tasks.plan_path.grid import FREE, MOVES, WALL, Cell, name
from troupe_tasks.plan_path.state import State, Trial
from troupe_tasks.puzzles.answers import without_marks

Style = Literal["compact", "verbose"]

TOOL, PLANNER = "tool", "planner"
KEYWORDS = {TOOL: "simulate", PLANNER: "plan"}
"""The word that each agent's answer begins with."""

SEARCH = "search"
"""The tool's other call, where the task's parameters give it one."""

WORDS = (*KEYWORDS.values(), TOOL, PLANNER, "walls", "at", "goal", "open", "from", *MOVES)
TRIAL_WORDS = ("tried", "nothing", "ends", "clear", "blocked")

_MOVE_LIST = r"[\s:(\[]*((?:[UDLR][\s,]*)*)(?![A-Za-z])[\])]*"

_CELL = r"[\s:(\[]*([a-z]\d{1,2})\b[\])]*"


@dataclass(frozen=True, slots=True)
class Answer:
    """The move letters read from an agent's text; ``is_well_formed`` judges the whole answer."""

    moves: str
    is_well_formed: bool


def read_answer(agent: str, text: str, max_actions: int) -> Answer:
    """Read the last ``simulate ...`` or ``plan ...`` in ``text``; never fails.

    Reasoning may stand before it. The answer is well formed when it holds 1 to ``max_actions``
    moves and nothing follows them; otherwise what can be read of it still counts. Where the last
    one has no moves, the last ``Simulate ...`` or ``Plan ...`` that has some counts; where none
    has, the same is read again without marks of bold and code.

    Example: ``read_answer("planner", "go round: plan R R D", 8)`` has the moves ``RRD``.
    """
    found = _read(KEYWORDS[agent], text, max_actions)
    if found.moves or (plain := without_marks(text)) == text:
        return found
    return _read(KEYWORDS[agent], plain, max_actions)


def _read(keyword: str, text: str, max_actions: int) -> Answer:
    call = _last_call(keyword, text)
    if call is None or not call.group(1):
        call = _last_call(f"{keyword.capitalize()}|{keyword.upper()}", text, with_moves=True)
    if call is None:
        return Answer("", is_well_formed=False)
    moves = re.sub(r"[^UDLR]", "", call.group(1))
    ends_there = not without_marks(text[call.end() :]).strip()
    return Answer(moves[:max_actions], ends_there and 0 < len(moves) <= max_actions)


def _last_call(keyword: str, text: str, *, with_moves: bool = False) -> re.Match[str] | None:
    calls = re.finditer(rf"\b(?:{keyword})\b{_MOVE_LIST}", text)
    return max((c for c in calls if c.group(1) or not with_moves), key=re.Match.start, default=None)


def read_search(text: str) -> str | None:
    """The cell named by ``search <cell>`` when that is the tool's call; None when it is not.

    As everywhere, the last call counts: a later ``simulate`` wins.

    Example: ``read_search("too far to guess: search f4") == "f4"``.
    """
    matches = list(re.finditer(rf"\b{SEARCH}\b{_CELL}", text))
    if not matches:
        return None
    last_simulate = max(
        (m.start() for m in re.finditer(rf"\b{KEYWORDS[TOOL]}\b", text)), default=-1
    )
    return matches[-1].group(1) if matches[-1].start() > last_simulate else None


def search(target: Cell) -> str:
    """The tool call that ``read_search`` reads as ``target``."""
    return f"{SEARCH} {name(target)}"


def answer(agent: str, moves: str) -> str:
    """The text that ``read_answer`` reads as ``moves``."""
    return " ".join((KEYWORDS[agent], *moves))


def rules(agent: str, max_actions: int, search_radius: int) -> str:
    """The system message of the verbose style."""
    rules = _RULES[agent].format(max_actions=max_actions)
    if agent == TOOL and search_radius:
        rules += _SEARCH_RULE.format(max_actions=max_actions, radius=search_radius)
    return rules


def observation(state: State, agent: str, rules: str | None) -> Observation:
    """The prompt of ``agent``: the map, the present and the last position, the tool's trial.

    In the verbose style with ``rules``, in the compact style without.
    """
    if rules is None:
        return (Message("user", _compact(state, agent)),)
    return Message("system", rules), Message("user", _verbose(state, agent))


def drawing(state: State) -> str:
    """The map with the present position as ``@`` and the goal as ``G``, one line per row."""
    rows = [list(row) for row in state.grid.rows]
    rows[state.goal[0]][state.goal[1]] = "G"
    rows[state.at[0]][state.at[1]] = "@"
    return "\n".join(" ".join(row) for row in rows)


def words(size: int, *, with_search: bool) -> list[str]:
    """Every word that the compact style can utter on a map of ``size``."""
    cells = [name((row, column)) for row in range(size) for column in range(size)]
    return [
        *WORDS,
        *([SEARCH] if with_search else []),
        *TRIAL_WORDS,
        *(str(n) for n in range(1, 10)),
        *cells,
    ]


def _compact(state: State, agent: str) -> str:
    facts = [
        "walls",
        *_names(state.grid.cells(WALL)),
        "at",
        name(state.at),
        "goal",
        name(state.goal),
        "open",
        *state.grid.exits(state.at),
    ]
    if state.came_from:
        facts += ["from", name(state.came_from)]
    if agent == PLANNER and state.trial:
        facts += trial_facts(state.trial, ["ends", name(state.trial.end)])
    return " ".join((*facts, agent))


def trial_facts(trial: Trial, end: Sequence[str]) -> list[str]:
    """The tool's trial in the compact style; ``end`` says where it ends."""
    if not trial.moves:
        return ["tried", "nothing"]
    outcome = ["blocked", str(trial.blocked[0])] if trial.blocked else ["clear"]
    return ["tried", *trial.moves, *end, *outcome]


def _verbose(state: State, agent: str) -> str:
    lines = [
        f"Walls: {', '.join(_names(state.grid.cells(WALL))) or 'none'}",
        f"Map, row 1 on top, column a on the left ({WALL} wall, {FREE} free, @ you, G goal):",
        drawing(state),
        f"Present position: {name(state.at)}",
        f"Goal: {name(state.goal)}",
        f"Open moves from here: {' '.join(state.grid.exits(state.at))}",
    ]
    if state.came_from:
        lines.append(f"Position before the last plan: {name(state.came_from)}")
    if agent == PLANNER and state.trial:
        lines.append(trial_sentence(state.trial, name(state.trial.end)))
    return "\n".join(lines)


def trial_sentence(trial: Trial, end: str) -> str:
    """The tool's trial in the verbose style; ``end`` names the cell where it ends."""
    if not trial.moves:
        return "Tool result: the tool call could not be read."
    blocked = ", ".join(str(number) for number in trial.blocked)
    outcome = f"blocked moves, counted from 1: {blocked}" if trial.blocked else "no move blocked"
    return f"Tool result: {' '.join(trial.moves)} would end at {end}; {outcome}."


def _names(cells: list[Cell]) -> list[str]:
    return [name(cell) for cell in cells]


_MOVE_RULES = (
    "The team walks on a square map to the goal. Moves are U (up, row - 1), D (down, row + 1), "
    "L (left), R (right). A move into a wall or off the map stays in place. "
)
_RULES = {
    TOOL: _MOVE_RULES
    + "You are the tool agent: you try moves out on a copy of the map, and the planner sees where "
    "they end. Think briefly, then end with one tool call of at most {max_actions} moves, for "
    "example: simulate R R D",
    PLANNER: _MOVE_RULES
    + "You are the planner: your moves are walked for real. If there is a tool result, check it "
    "before you use it. Think briefly, then end with one plan of at most {max_actions} moves, "
    "for example: plan R R D",
}
_SEARCH_RULE = (
    " Or search for a way to a cell at most {radius} moves off; the planner sees its first "
    "{max_actions} moves, or that there is none: search c4"
)
