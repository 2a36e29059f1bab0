"""One prepared row of tau2-bench: a customer's ticket and the right calls."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from troupe.data.overlap import near_verbatim
from troupe.data.taskset import PreparedRow


class Tau2Call(BaseModel):
    """One call of the reference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=80)
    arguments: dict[str, Any]


class Tau2Row(PreparedRow):
    """What the customer wants, and the calls whose database is the right one.

    Example: ``Tau2Row(id="tau2/retail/0", ticket="You want ...", actions=())``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(min_length=1, max_length=200)
    ticket: str = Field(min_length=1, max_length=20_000)
    actions: tuple[Tau2Call, ...]

    @property
    def compared(self) -> str:
        """What the customer wants."""
        return near_verbatim(self.ticket)
