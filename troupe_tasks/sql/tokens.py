"""Cuts SQL text into tokens, and bounds what SQLite's compiler may make of it.

SQLite copies a common table expression once for each name that refers to it, and a column of an
inner query once for each use, so a query of 500 characters can keep the compiler busy for hours
before its first operation. No progress handler sees that before SQLite 3.41: ``expansion`` does.
"""

import re
from collections import Counter
from collections.abc import Sequence

MAX_EXPANSION = 20_000
"""Copies of one expression that a query may ask the compiler for."""

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=|>=|<>|!=|==|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = (
    "select from where group by having order limit offset and or not in is null as on join left "
    "inner outer cross natural using distinct all union intersect except with recursive case when "
    "then else end like between exists asc desc over partition cast integer real text"
)
_KEYWORDS = frozenset(_WORDS.split())

Token = tuple[str, str]
"""Kind (string, quoted, number, word or sign) and text."""


def tokens(sql: str) -> list[Token]:
    """The tokens of ``sql`` without spaces and comments."""
    found: list[Token] = []
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or ""
        if kind != "space":
            found.append((kind, match.group()))
    return found


def expansion(sql: str) -> int:
    """A bound on how often the compiler copies one expression or table expression.

    Between two SELECT words each name is counted; the bound is the product over these stretches of
    1 + the largest count. A query at depth d that uses a name r times at each level is copied
    at most r^d times, which is never more.

    Example: ``expansion("SELECT a+a FROM (SELECT b AS a FROM t)") == 3 * 2``.
    """
    product, names = 1, Counter[str]()
    for kind, text in [*tokens(sql), ("word", "select")]:
        word = text.strip('"`[]').lower()
        if kind == "word" and word == "select":
            product *= 1 + max(names.values(), default=0)
            names.clear()
        elif kind in ("quoted", "word") and (kind == "quoted" or word not in _KEYWORDS):
            names[word] += 1
        elif kind == "string":
            names[text.strip("'").lower()] += 1  # SQLite takes 'x' for a column where it must
    return product


def constants(sql: str) -> str:
    """What ``sql`` itself may print: its texts and numbers, joined, in small letters.

    Quoted names count: SQLite takes ``"x"`` for a text where no column is called so.
    """
    kinds = ("string", "quoted", "number")
    return "".join(text.strip("'\"`[]") for kind, text in tokens(sql) if kind in kinds).casefold()


def first_word(sql: str) -> str:
    """The first word in lower case: what kind of statement it is."""
    found = tokens(sql)
    return found[0][1].lower() if found and found[0][0] == "word" else ""


def written(parts: Sequence[str]) -> str:
    """Token texts as one query, with a blank between any two."""
    return " ".join(parts)
