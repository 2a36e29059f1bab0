"""How an agent's text becomes an action of a foreign environment, and how the prompt asks for one.

Owns parsing. Reading never fails: text that holds no action is None.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from troupe.tasks.actions import is_shallow

MAX_TEXT = 4000
"""Characters of a free-text action that are passed on, so that a history stays small."""

_LABEL = re.compile(r"^(?:final\s+)?(?:action|answer|move)\s*[:=]\s*", re.IGNORECASE)


class Actions(Protocol):
    """Reads answers of one agent."""

    def read(self, text: str) -> Any:
        """The action in ``text`` as a JSON value, or None."""
        ...

    def ask(self) -> str:
        """What the prompt says about answering."""
        ...

    def draw(self, rng: Random, legal: Sequence[int] | None) -> str:
        """A text that ``read`` understands, drawn at random."""
        ...

    def words(self) -> list[str]:
        """Words that answers are made of."""
        ...


class NamedActions:
    """Actions with names: the last line of the answer must be one, with or without ``action:``.

    A name may itself be, begin or end with what is taken off an answer: ``*``, ``move: left``.

    Example: ``NamedActions({"left": 0, "right": 1}).read("I go back.\\naction: Left")`` is 0.
    """

    def __init__(self, by_name: Mapping[str, Any]) -> None:
        self._by_name = dict(by_name)
        self._folded = {name.casefold(): value for name, value in self._by_name.items()}

    def read(self, text: str) -> Any:
        line = _raw_line(text).casefold()
        unlabelled = _LABEL.sub("", line).strip()
        for said in (line, unlabelled, last_line(text).casefold()):
            if said in self._folded:
                return self._folded[said]
        return None

    def ask(self) -> str:
        return "End your answer with one line that is one of: " + ", ".join(self._by_name)

    def draw(self, rng: Random, legal: Sequence[int] | None) -> str:
        names = list(self._by_name)
        fitting = [name for name in names if legal is None or self._by_name[name] in legal]
        return rng.choice(fitting or names)

    def words(self) -> list[str]:
        return [word for name in self._by_name for word in name.split()]


class FreeText:
    """The whole answer is the action, for environments that parse it themselves."""

    def __init__(self, field: str | None = None, samples: Sequence[str] = ()) -> None:
        """``field``: put the text under this key of a JSON object."""
        self._field = field
        self._samples = tuple(samples) or ("pass",)

    def read(self, text: str) -> Any:
        answer = text.strip()[:MAX_TEXT]
        if not answer:
            return None
        return answer if self._field is None else {self._field: answer}

    def ask(self) -> str:
        return ""

    def draw(self, rng: Random, legal: Sequence[int] | None) -> str:
        return rng.choice(self._samples)

    def words(self) -> list[str]:
        return [word for sample in self._samples for word in sample.split()]


class JsonObject:
    """The last line is a JSON object, which is the action."""

    def __init__(self, samples: Sequence[Mapping[str, Any]] = ()) -> None:
        self._samples = tuple(samples) or ({},)

    def read(self, text: str) -> Any:
        try:
            document = json.loads(last_line(text)[:MAX_TEXT], parse_constant=_refused)
            # A number beyond all floats and half a character are read, and no wire can hold them.
            json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) and is_shallow(document) else None

    def ask(self) -> str:
        shown = " or ".join(json.dumps(sample) for sample in self._samples[:3])
        return f"End your answer with one line that is a JSON object, such as {shown}"

    def draw(self, rng: Random, legal: Sequence[int] | None) -> str:
        return json.dumps(rng.choice(self._samples))

    def words(self) -> list[str]:
        return [word for sample in self._samples for word in json.dumps(sample).split()]


class ParsedBy:
    """A user's function ``parse(text) -> JSON value or None``; what it raises means None."""

    def __init__(self, parse: Callable[[str], Any], sample: Callable[[Random], str]) -> None:
        self._parse = parse
        self._sample = sample

    def read(self, text: str) -> Any:
        try:
            return self._parse(text[-MAX_TEXT:])
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ):
            return None

    def ask(self) -> str:
        return ""

    def draw(self, rng: Random, legal: Sequence[int] | None) -> str:
        return self._sample(rng)

    def words(self) -> list[str]:
        return []


def last_line(text: str) -> str:
    """The last non-blank line of ``text`` without a label such as ``action:`` and end marks.

    Only the last line counts, so naming every action at once names the last one only.
    """
    return _LABEL.sub("", _raw_line(text)).strip().strip(".!`'\"*").strip()


def _raw_line(text: str) -> str:
    return text[-MAX_TEXT:].rstrip().rpartition("\n")[2].strip()


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
