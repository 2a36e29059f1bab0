"""Serves one data set of reasoning-gym: its items, and scores of answers.

Some of its scorers give the answer to ``eval`` or to sympy's parser, which evaluates it. While an
answer is scored, both read literals and plain formulas alone, and no program can be started.
"""

import ast
import contextlib
import importlib
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rollouts import install, seeded
from serve import NO_THREAD, RefusedError, is_transient

MAX_FORMULA = 1000
MAX_ASKED = 4096
"""Questions that are kept: a split's task is found among ten, and some take 0.1 s to make."""
_FORMULA = re.compile(r"[\w\s+\-*/^().,]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOWER = re.compile(r"(?:\*\*|\^)[^+\-,]*(?:\*\*|\^)|(?:\*\*|\^)\s*\(*\s*\d{4}")
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "sec",
        "csc",
        "cot",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "log",
        "ln",
        "sqrt",
        "Abs",
        "pi",
    ]
)
_EVALUATING = {"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"}
"""Data sets (0.1.25) that give an answer to ``eval``, to read a list."""

_FORBIDDEN = ("os.", "subprocess.", "socket.", "ctypes.", "shutil.", "pty.", "ftplib.", "urllib.")
_is_scoring = False


class Items:
    """One data set."""

    def __init__(self, dataset: str, config: dict[str, Any], size: int, seed: int) -> None:
        try:
            gym = importlib.import_module("reasoning_gym")
        except ImportError as error:
            raise RefusedError(
                f"reasoning-gym is not installed for this interpreter ({error}); install it there: "
                "pip install reasoning-gym"
            ) from None
        known = importlib.import_module("reasoning_gym.factory").DATASETS
        if dataset not in known:
            raise RefusedError(
                f"reasoning-gym has no data set '{dataset}'; it has {', '.join(sorted(known))}"
            )
        self._name = dataset
        self._asked: dict[int, dict[str, Any]] = {}
        if "datasets" in config:  # of `composite`
            spec = importlib.import_module("reasoning_gym.composite").DatasetSpec
            parts = [{"weight": 1.0, "config": {}, **part} for part in config["datasets"]]
            config = {**config, "datasets": [spec(**part) for part in parts]}
        try:
            self._items: Any = gym.create_dataset(dataset, size=size, seed=seed, **config)
        except (TypeError, ValueError, AssertionError) as error:
            raise RefusedError(f"'{dataset}' refuses its configuration {config}: {error}") from None
        self._extract = importlib.import_module("reasoning_gym.utils").extract_answer
        self._prompt = importlib.import_module("reasoning_gym.utils").SYSTEM_PROMPTS["default"]

    def describe(self) -> dict[str, Any]:
        """The instruction, the number of items, and whether items come with an answer."""
        return {
            "prompt": self._prompt,
            "num_items": len(self._items),
            "has_answers": isinstance(self._items[0]["answer"], str),
        }

    def item(self, index: int) -> dict[str, Any]:
        """The question at ``index`` and its answer, None where the library has none."""
        if index not in self._asked:
            entry = self._entry(index)
            answer = entry["answer"] if isinstance(entry["answer"], str) else None
            while len(self._asked) >= MAX_ASKED:
                self._asked.pop(next(iter(self._asked)))
            self._asked[index] = {"question": entry["question"], "answer": answer}
        return self._asked[index]

    def score(self, index: int, text: str) -> dict[str, Any]:
        """What the data set pays for the answer in ``text``; ``is_read``: there was one."""
        entry = self._entry(index)
        answer = self._extract(text)
        with guarded(self._name, type(self._items).__module__):
            try:
                score = float(self._items.score_answer(answer, entry))
            except Exception as error:
                # Words may be the answer's, but for Python's own; and an answer can use up memory.
                is_no_thread = isinstance(error, RuntimeError) and str(error) == NO_THREAD
                if is_no_thread or (isinstance(error, OSError) and is_transient(error)):
                    raise
                score = 0.0  # a scorer that an answer breaks: the answer is wrong
        return {"score": score, "is_read": answer is not None}

    def _entry(self, index: int) -> Any:
        """An item is a function of its index, though some draw from the global generators too."""
        install(seeded(index))
        return self._items[index]


def opened(**settings: Any) -> Items:
    """The data set; see ``Items``."""
    sys.addaudithook(_audited)
    return Items(**settings)


@contextmanager
def guarded(dataset: str, module: str) -> Generator[None]:
    """Read an answer as a literal or a formula, whatever its scorer would evaluate."""
    global _is_scoring
    scorer = vars(sys.modules[module])
    sympy: Any = importlib.import_module("sympy")
    parse = sympy.parse_expr

    def formula(text: str, *args: Any, **kwargs: Any) -> Any:
        if not is_formula(text):
            raise ValueError("not a formula")
        return parse(text, *args, **kwargs)

    before = dict(scorer)
    sympy.parse_expr = formula
    if scorer.get("parse_expr") is parse:
        scorer["parse_expr"] = formula
    if dataset in _EVALUATING:
        scorer["eval"] = ast.literal_eval
    _is_scoring = True
    try:
        yield
    finally:
        _is_scoring = False
        sympy.parse_expr = parse
        for name in ("parse_expr", "eval"):
            if name in before:
                scorer[name] = before[name]
            else:
                scorer.pop(name, None)


def is_formula(text: str) -> bool:
    """Whether ``text`` is numbers, names of one letter and known functions, and no huge power."""
    if len(text) > MAX_FORMULA or not _FORMULA.fullmatch(text) or _TOWER.search(text):
        return False
    words = _WORD.findall(text)
    return "_" not in text and all(len(word) == 1 or word in _FUNCTIONS for word in words)


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse programs, sockets and writing while an answer is scored."""
    if not _is_scoring:
        return
    is_writing = False
    if event == "open":
        with contextlib.suppress(IndexError):
            is_writing = bool(set(str(arguments[1] or "")) & set("wax+"))
    if is_writing or (event.startswith(_FORBIDDEN) and event not in ("os.listdir", "os.scandir")):
        raise PermissionError(f"an answer may not do this: {event}")
