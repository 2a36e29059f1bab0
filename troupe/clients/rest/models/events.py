"""REST models of a job's events."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from troupe.clients.rest.models.base import Document, JsonObject, Parameters
from troupe.clients.rest.models.jobs import TERMINAL


class EventPageQuery(Parameters):
    """Which events."""

    after: str = "0"
    """Events after this place: 0, `next` of a page, or the id of an event."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """Most events of the page."""
    wait_s: Annotated[float, Field(ge=0.0, le=30.0)] = 0.0
    """Wait so long for the first event."""


class EventDocument(Document):
    """One thing that happened to a job; ``id`` is its place, for ``events(after=...)``.

    Example: ``EventDocument(id="17-0", type="job.state", data={"state": "running"})``.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "1767225600000-0",
                "type": "job.state",
                "occurred_at": 1767225600.0,
                "source": "router",
                "data": {"state": "queued", "reason": ""},
            }
        }
    )

    id: str
    """Place in the job's events."""
    type: str
    """Stable name: job.state, round.opened, round.played, step.recorded, ..."""
    occurred_at: float = 0.0
    """When."""
    source: str = ""
    """Service that said it."""
    data: JsonObject = Field(default_factory=dict[str, Any])
    """The details."""

    @property
    def tells_end(self) -> bool:
        """Whether it says that the job is over: such a job says nothing more."""
        return self.type == "job.state" and str(self.data.get("state")) in TERMINAL


class EventPage(Document):
    """Events after a place."""

    events: list[EventDocument]
    """In the order in which they happened."""
    next: str
    """`after` of the next page."""
