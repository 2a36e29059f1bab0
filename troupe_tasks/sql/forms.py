"""How a database writes its words and days: an instance's own habit, which only reading shows.

The question says "Oslo" and "March"; the column holds ``OSL`` and ``20240317``. The writer sees the
schema and not the rows, so it needs what the explorer read.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from troupe_tasks.sql.domains import Domain

WordForm = Literal["plain", "upper", "code", "prefixed", "numbered"]
DayForm = Literal["iso", "compact", "european"]
WORD_FORMS: tuple[WordForm, ...] = get_args(WordForm)
DAY_FORMS: tuple[DayForm, ...] = get_args(DayForm)


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of one instance: of the group column, of the kind column and of days."""

    group: WordForm
    kind: WordForm
    day: DayForm

    def of_group(self, domain: Domain, word: str) -> str:
        """What the group column holds for ``word``."""
        return _form(self.group, word, domain.groups)

    def of_kind(self, domain: Domain, word: str) -> str:
        """What the kind column holds for ``word``."""
        return _form(self.kind, word, domain.kinds)

    def of_day(self, month: int, day: int) -> str:
        """A day of 2024 as the day column writes it."""
        if self.day == "iso":
            return f"2024-{month:02d}-{day:02d}"
        return (
            f"2024{month:02d}{day:02d}" if self.day == "compact" else f"{day:02d}.{month:02d}.2024"
        )

    def month_test(self, column: str, month: int) -> str:
        """A condition of SQL: the day in ``column`` lies in ``month``."""
        start = {"iso": 6, "compact": 5, "european": 4}[self.day]
        return f"substr({column}, {start}, 2) = '{month:02d}'"


def drawn_forms(rng: Random) -> Forms:
    """Any forms."""
    return Forms(rng.choice(WORD_FORMS), rng.choice(WORD_FORMS), rng.choice(DAY_FORMS))


def _form(form: WordForm, word: str, words: tuple[str, ...]) -> str:
    if form == "upper":
        return word.upper()
    if form == "code":
        return word[:3].upper()
    if form == "prefixed":
        return f"x-{word.lower()}"
    return f"{words.index(word) + 1} {word}" if form == "numbered" else word
