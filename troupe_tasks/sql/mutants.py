"""Wrong queries made from a right one: one token or clause changed at a time.

The slips that a suite of databases must tell apart: a bound that is off by one, another
comparison, a lost condition, AND for OR, DISTINCT gained or lost, another aggregate, another
column, another join, another order.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from troupe_tasks.sql.tokens import Token, tokens, written

_COMPARISONS = (">", ">=", "<", "<=", "=", "<>")
_AGGREGATES = ("SUM", "COUNT", "AVG", "MAX", "MIN")
_SWAPS: Mapping[str, tuple[str, ...]] = {
    "AND": ("OR",),
    "OR": ("AND",),
    "DISTINCT": ("",),
    "DESC": ("ASC",),
    "NOT": ("",),
    "JOIN": ("LEFT JOIN",),
    **{name: tuple(n for n in _AGGREGATES if n != name) for name in _AGGREGATES},
    **{sign: tuple(s for s in _COMPARISONS if s != sign) for sign in _COMPARISONS},
}
_CLAUSE = re.compile(
    r"(?P<where> WHERE .*?)(?= GROUP | ORDER | \) |$)|(?P<having> HAVING .*?)(?= ORDER | \) |$)"
    r"|(?P<order> ORDER BY .*?)(?= LIMIT | \) |$)|(?P<limit> LIMIT \d+)|(?P<first>(?<= WHERE ).*? "
    r"AND )"
)


def mutants(
    sql: str, columns: Mapping[str, Sequence[str]], words: Sequence[str] = ()
) -> Iterator[str]:
    """Queries that differ from ``sql`` in one place, each once.

    ``columns`` are the columns of each table, ``words`` other values that a text constant may be
    mistaken for.
    """
    seen = {written([text for _, text in tokens(sql)])}
    for mutant in _all(tokens(sql), columns, words):
        if mutant not in seen:
            seen.add(mutant)
            yield mutant


def _all(
    parts: list[Token], columns: Mapping[str, Sequence[str]], words: Sequence[str]
) -> Iterator[str]:
    texts = [text for _, text in parts]
    for at, (kind, text) in enumerate(parts):
        for other in _others(kind, text, columns, words):
            yield written([*texts[:at], *([other] if other else []), *texts[at + 1 :]])
        if text == "SELECT":
            yield written([*texts[: at + 1], "DISTINCT", *texts[at + 1 :]])
        if text == "(" and at and texts[at - 1] in _AGGREGATES and texts[at + 1] != "*":
            yield written([*texts[: at + 1], "DISTINCT", *texts[at + 1 :]])
        if text == "*" and texts[at - 1] == "(":
            for column in {c for table in columns if table in texts for c in columns[table]}:
                yield written([*texts[:at], "DISTINCT", column, *texts[at + 1 :]])
    whole = written(texts)
    for match in _CLAUSE.finditer(whole):
        yield whole[: match.start()] + whole[match.end() :]
    for match in re.finditer(r" AND (?:(?! AND | OR | GROUP | ORDER | HAVING | \) ).)+", whole):
        yield whole[: match.start()] + whole[match.end() :]


def _others(
    kind: str, text: str, columns: Mapping[str, Sequence[str]], words: Sequence[str]
) -> Iterator[str]:
    if kind == "number":
        yield from (str(int(text) + step) for step in (-1, 1) if "." not in text)
    elif kind == "string":
        yield from (f"'{word}'" for word in words if f"'{word}'" != text)
    elif text in _SWAPS:
        yield from _SWAPS[text]
    elif kind == "word":
        for owned in columns.values():
            if text in owned:
                yield from (column for column in owned if column != text)
                break
