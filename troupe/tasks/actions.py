"""Actions: what an agent's completion says, and whether a bound cut it short."""


class CutAction(str):
    """A completion that a bound cut short; equal to its text.

    An environment that reads the text alone need not know of it. Slicing gives a plain text.

    Example: ``CutAction("so the sum is") == "so the sum is"``, and ``is_cut`` holds of it alone.
    """

    __slots__ = ()


def is_cut(action: str) -> bool:
    """Whether a bound cut ``action`` short, as far as is known."""
    return isinstance(action, CutAction)
