"""One prepared math problem: the row of a JSON Lines file and the payload of a task."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from troupe.data.overlap import near_verbatim
from troupe.data.taskset import PreparedRow

MAX_PROBLEM_CHARS = 20_000
MAX_ANSWER_CHARS = 256
REQUEST = "request"
"""The ``source`` of a problem that a user asks: nobody knows its answer."""


class MathRow(PreparedRow):
    """A problem with one short answer. ``answer`` is hidden: it never reaches a prompt.

    ``program`` is a Python program that prints the answer, where the author gave one; scripted
    policies run it, no model sees it.

    Example: ``MathRow(id="aime24/0", problem="...", answer="204", source="aime24")``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=200)
    problem: str = Field(min_length=1, max_length=MAX_PROBLEM_CHARS)
    answer: str = Field(max_length=MAX_ANSWER_CHARS)
    source: str = Field(min_length=1, max_length=200)
    subject: str = Field(default="", max_length=200)
    level: str = Field(default="", max_length=64)
    program: str = Field(default="", max_length=4_000)

    @property
    def compared(self) -> str:
        """The problem."""
        return near_verbatim(self.problem)

    @model_validator(mode="after")
    def _is_answered(self) -> Self:
        if not self.answer and self.source != REQUEST:
            raise ValueError("a problem needs an answer")
        return self
