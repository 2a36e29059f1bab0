"""The prompts of the repair family: the reader sees files, the fixer what the reader hands over."""

from troupe.tasks.family import Message, Observation
from troupe.tasks.quoting import quoted
from troupe_tasks.repair.edits import MIDDLE, REPLACE, SEARCH
from troupe_tasks.repair.reading import MAX_READS, MAX_SHOWS, OPEN_LINES, SHOW_LINES, outline
from troupe_tasks.repair.state import State

READER, FIXER = "reader", "fixer"
AGENTS = (READER, FIXER)

_READING = (
    f"Write one command a line, at most {MAX_READS}:\n"
    "search TEXT\n"
    f"open PATH FIRST LAST (at most {OPEN_LINES} lines; you see them in your next turn)\n"
)
_HANDING = (
    f"show PATH FIRST LAST (hands at most {SHOW_LINES} lines to the fixer, {MAX_SHOWS} times a "
    "turn)\n"
    "note TEXT (one line for the fixer)"
)
_EDITING = (
    "Edit with blocks; the lines to search must stand in the file exactly once, whole and with "
    f"their indentation:\nPATH\n{SEARCH}\nold lines\n{MIDDLE}\nnew lines\n{REPLACE}\n"
    "Tests and new files cannot be edited. Hidden tests judge the repository."
)
_RULES = {
    READER: "A repository has one fault. You read it; the fixer, who sees only what you hand over, "
    "repairs it. Find the faulty lines and show them. " + _READING + _HANDING,
    FIXER: "A repository has one fault. The reader finds it and shows you lines; you repair it. "
    + _EDITING
    + " With nothing to edit yet write: wait",
}
_SOLO = "A repository has one fault. Find it and repair it. " + _READING + _EDITING


def observation(state: State, agent: str, *, is_solo: bool) -> Observation:
    """The prompt of ``agent``."""
    parts = [f"Issue: {state.instance.issue}"]
    if is_solo or agent == READER:
        parts += ["Files:", *outline(state.files)]
        parts += [text for found in state.found for text in ("Result:", quoted(found))]
    if is_solo or agent == FIXER:
        parts += [text for handed in state.handed for text in ("From the reader:", quoted(handed))]
        parts += [f"Not done: {refusal}" for refusal in state.refusals]
    if state.outcomes:
        parts += ["Tests after the last edit:", *(quoted(o) for o in state.outcomes)]
    rules = _SOLO if is_solo else _RULES[agent]
    return Message("system", rules), Message("user", "\n".join(parts))
