"""One prepared source text: the row of a JSON Lines file and the payload of a task."""

from pydantic import ConfigDict, Field

from troupe.data.overlap import near_verbatim
from troupe.data.taskset import PreparedRow

MAX_TEXT_CHARS = 20_000


class WritingRow(PreparedRow):
    """A text to write about.

    ``pair`` is a pair of texts that fits, where the author wrote one: scripted policies give it,
    no model sees it.

    Example: ``WritingRow(id="tldr/0", text="My cat ...", source="tldr")``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARS)
    source: str = Field(min_length=1, max_length=200)
    title: str = Field(default="", max_length=1_000)
    pair: tuple[str, str] | None = None

    @property
    def compared(self) -> str:
        """The text, whatever its title."""
        return near_verbatim(self.text)
