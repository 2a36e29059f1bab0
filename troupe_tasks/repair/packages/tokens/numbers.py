"""Numbers in lines."""

from .fields import padded


def numbers_of(line: str) -> list[int]:
    """All words of digits, as numbers; one minus sign may stand before the digits."""
    found: list[int] = []
    for word in line.split():
        digits = word[1:] if word.startswith("-") else word
        if digits.isdigit():
            found.append(-int(digits) if word.startswith("-") else int(digits))
    return found


def spread(line: str) -> int:
    """The largest number less the smallest one; 0 without numbers."""
    found = numbers_of(line)
    return max(found) - min(found) if found else 0


def checksum(line: str) -> int:
    """The sum of each number times its place from 1 on, modulo 97."""
    total = 0
    for place, number in enumerate(numbers_of(line), start=1):
        total += place * number
    return total % 97


def column(values: list[int], width: int) -> list[str]:
    """The values as texts, set to the right in a column at least as wide as the widest one."""
    texts = [str(value) for value in values]
    wide = max([width, *(len(text) for text in texts)])
    return [padded(text, wide) for text in texts]
