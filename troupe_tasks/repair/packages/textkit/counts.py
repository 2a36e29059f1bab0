"""Count words."""

from .clean import words_of


def counted(text: str) -> dict[str, int]:
    """How often each word occurs."""
    counts: dict[str, int] = {}
    for word in words_of(text):
        counts[word] = counts.get(word, 0) + 1
    return counts


def longest(text: str) -> str:
    """The longest word, the first one of equals; empty without words."""
    best = ""
    for word in words_of(text):
        if len(word) > len(best):
            best = word
    return best


def repeated(text: str, least: int) -> list[str]:
    """Words that occur ``least`` times or more, in the order of the alphabet."""
    counts = counted(text)
    return sorted(word for word in counts if counts[word] >= least)


def initials(text: str) -> str:
    """The first letters of all words, as capitals."""
    letters = [word[0].upper() for word in words_of(text)]
    return "".join(letters)
