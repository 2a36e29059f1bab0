"""Clean texts."""


def squeezed(text: str) -> str:
    """The words of ``text`` with one space between them."""
    return " ".join(text.split())


def words_of(text: str) -> list[str]:
    """Lower-case words without commas and full stops at their ends; empty ones are left out."""
    words: list[str] = []
    for word in text.lower().split():
        bare = word.strip(".,")
        if bare:
            words.append(bare)
    return words


def titled(text: str) -> str:
    """Words of more than three letters begin with a capital, and so does the first word."""
    words: list[str] = []
    for number, word in enumerate(text.lower().split()):
        is_big = number == 0 or len(word) > 3
        words.append(word.capitalize() if is_big else word)
    return " ".join(words)


def shortened(text: str, most: int) -> str:
    """At most ``most`` letters; what is cut ends in two dots when there is room for them."""
    if len(text) <= most:
        return text
    if most < 2:
        return text[: max(0, most)]
    return text[: most - 2] + ".."
