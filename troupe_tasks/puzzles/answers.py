"""Reads the actions of an agent's answer, whatever stands before them; never fails."""

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice


@dataclass(frozen=True, slots=True)
class Answer:
    """The actions read from an agent's text; ``is_well_formed`` judges the whole answer."""

    actions: tuple[str, ...]
    is_well_formed: bool


def read_answer(keyword: str, item: str, text: str, max_actions: int) -> Answer:
    """Read the last ``keyword action action ...`` in ``text``.

    Reasoning may stand before it, and so may other answers: only the last one that holds an
    action counts; where none does, the last with the keyword in another case; where none does
    either, the same is read again without marks of bold and code. It is well formed when it holds
    1 to ``max_actions`` actions and nothing follows them; otherwise what can be read of it still
    counts, up to ``max_actions``.

    Example: ``read_answer("place", "([a-h][1-8])", "so: place b4, c1", 8)`` has ``("b4", "c1")``.
    """
    call, any_case, action = _patterns(keyword, item)
    last = _last(call, text) or _last(any_case, text)
    if last is None and (plain := without_marks(text)) != text:
        return read_answer(keyword, item, plain, max_actions)
    if last is None:
        return Answer((), is_well_formed=False)
    items = islice(action.finditer(last.group(1)), max_actions + 1)
    actions = tuple(" ".join(match.groups()) for match in items)
    ends_there = not without_marks(text[last.end() :]).strip()
    return Answer(actions[:max_actions], ends_there and 0 < len(actions) <= max_actions)


def without_marks(text: str) -> str:
    """``text`` without Markdown's marks of bold and of code."""
    return text.replace("**", "").replace("`", "")


def write_answer(keyword: str, actions: Sequence[str]) -> str:
    """The text that ``read_answer`` reads as ``actions``."""
    return " ".join((keyword, *actions))


def _last(call: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match that holds an action."""
    found = deque((match for match in call.finditer(text) if match.group(1)), maxlen=1)
    return found[0] if found else None


@lru_cache(maxsize=64)
def _patterns(keyword: str, item: str) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    uncaptured = re.sub(r"\((?!\?)", "(?:", item)
    # An action never runs into a word that follows it: "R" of "Right" is none.
    rest = rf"\b[\s:(\[]*((?:{uncaptured}(?![A-Za-z0-9])[\s,;]*)*)[\])]*"
    calls = (rf"\b{keyword}{rest}", rf"\b(?i:{keyword}){rest}")
    return re.compile(calls[0]), re.compile(calls[1]), re.compile(item)
