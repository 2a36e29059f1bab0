"""Fields of a line."""


def split_fields(line: str, mark: str) -> list[str]:
    """The fields between marks, without spaces at their ends; a line without fields has none."""
    if not line.strip():
        return []
    if not mark:
        return [line.strip()]
    return [field.strip() for field in line.split(mark)]


def field(line: str, mark: str, number: int) -> str:
    """The field with a number from 1 on; empty when there is none."""
    fields = split_fields(line, mark)
    if 1 <= number <= len(fields):
        return fields[number - 1]
    return ""


def padded(text: str, width: int) -> str:
    """The text with spaces before it until it is ``width`` long; longer ones stay."""
    return " " * max(0, width - len(text)) + text
