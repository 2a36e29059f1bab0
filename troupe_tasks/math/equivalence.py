r"""Decides whether an agent's answer is equivalent to the reference.

Numbers are compared here, exactly; all else by math-verify in a process of its own, after the
answer's form was found to be that of one worked-out answer. An answer that cannot be read is
wrong; that nothing could be compared is a retryable error, never a wrong answer.
"""

import re
from functools import lru_cache

from troupe_tasks.math.boxed import MAX_ANSWER_CHARS
from troupe_tasks.math.form import is_one_answer, num_operations, without_assignment
from troupe_tasks.math.literal import NUM_ROUNDED_DECIMALS, is_same_number, read_literal
from troupe_tasks.math.units import TEXT, is_other_half_day, without_unit
from troupe_tasks.math.worker_process import WorkerPool

CPU_S = 3.0
"""Processor time for one comparison."""

TIMEOUT_S = 20.0
WAIT_S = 20.0
POOL_SIZE = 2
MAX_REMEMBERED = 4096

_TEXT = re.compile(rf"{TEXT}\s*\{{([^{{}}]*)\}}")
_UPRIGHT = re.compile(rf"{TEXT}\s*\{{\s*([ie])\s*\}}")
_NAME = re.compile(r"(?=.*[A-Z])[A-Za-z]{2,}", re.ASCII)
"""A word or a row of letters; all in small letters it may be a product."""
_BASE = re.compile(r"[0-9A-F]+_\{?(?P<base>\d+)\}?", re.ASCII)
_SAME = (("\\dfrac", "\\frac"), ("\\tfrac", "\\frac"), ("\\varnothing", "\\emptyset"))
_SETTING = re.compile(r"\\(?:left|right)(?![a-zA-Z])|\\[,!;:]|(?<!\\)\$")


class Equivalence:
    """Compares answers; keeps the verdicts that are final. Safe to use from several threads."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self._pool = pool or WorkerPool(POOL_SIZE, cpu_s=CPU_S, timeout_s=TIMEOUT_S, wait_s=WAIT_S)
        self._cached_ask = lru_cache(MAX_REMEMBERED)(self._ask)

    def is_equal(self, gold: str, candidate: str | None, *, problem: str = "") -> bool:
        r"""Whether ``candidate`` is the answer ``gold``.

        ``391`` equals ``391.0`` but neither ``17 \cdot 23`` nor ``\{390, 391\}``; a formula that
        stands in ``problem`` is no answer to it, unless it is the reference word for word. Raises
        retryable errors when a comparison could not be made.
        """
        if candidate is None or not 0 < len(candidate.strip()) <= MAX_ANSWER_CHARS:
            return False
        gold = gold.strip()
        if is_other_half_day(gold, candidate):
            return False
        number = read_literal(without_assignment(gold))
        if number is not None:
            answer = read_literal(without_assignment(candidate))
            return answer is not None and is_same_number(number, answer)
        if without_assignment(gold) == gold or "\\in" in gold:
            gold, candidate = without_assignment(gold), without_assignment(candidate)
        if _squeezed(gold) == _squeezed(candidate):
            return True
        gold, candidate = _term(gold), _term(candidate)
        if _squeezed(gold) == _squeezed(candidate):
            return True
        if _says_another(gold, candidate):
            return False
        if num_operations(candidate) and _bare(candidate) in _bare(problem):
            return False
        return is_one_answer(gold, candidate) and self._cached_ask(gold, candidate)

    def agree(self, first: str | None, second: str | None) -> bool:
        """Whether two answers, neither of them a reference, are the same.

        A written number and a formula agree only when the number may be rounded, as a program
        prints it; an exact one could stand for the formula, and its author would have written it.
        """
        if first is None or second is None:
            return False
        numbers = [read_literal(without_assignment(text)) for text in (first, second)]
        written = [number for number in numbers if number is not None]
        if len(written) == 1 and written[0].num_decimals < NUM_ROUNDED_DECIMALS:
            return False
        return self.is_equal(first, second) or self.is_equal(second, first)

    def close(self) -> None:
        """End the processes that compare."""
        self._pool.close()

    def _ask(self, gold: str, candidate: str) -> bool:
        return self._pool.ask(gold, candidate) == "equal"


def _term(text: str) -> str:
    """``text`` without its unit, and with the numbers i and e in one type."""
    return _UPRIGHT.sub(r" \1 ", without_unit(text)).strip()


def _squeezed(text: str) -> str:
    """``text`` without what only sets it: spaces, dollar signs, big brackets, upright type."""
    text = _TEXT.sub(r"\1", text)
    plain = _SETTING.sub("", text)
    for written, same in _SAME:
        plain = plain.replace(written, same)
    return "".join(plain.split())


def _says_another(gold: str, candidate: str) -> bool:
    """Whether both are words, or numbers in a base, and differ.

    A computer algebra system takes ``BAC`` for a product, and drops the base of ``1011_2``.
    """
    words = [_squeezed(text) for text in (gold, candidate)]
    if _NAME.fullmatch(words[0]) and words[1].isalpha():
        return words[0].casefold() != words[1].casefold()
    bases = [_BASE.fullmatch(_squeezed(text)) for text in (gold, candidate)]
    written = [base["base"] for base in bases if base is not None]
    return len(written) == 2 and written[0] != written[1]


def _bare(text: str) -> str:
    """``_squeezed`` without the braces of groups: to find a formula again, not to compare two."""
    return re.sub(r"(?<!\\)[{}]", "", _squeezed(text))
