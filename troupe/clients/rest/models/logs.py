"""REST models of the logs of a job's processes."""

from typing import Annotated

from pydantic import Field

from troupe.clients.rest.models.base import Document, Parameters


class LogPageQuery(Parameters):
    """Which lines: the last ones, or those after a place."""

    tail: Annotated[int, Field(ge=0, le=10_000)] = 200
    """The last lines."""
    after: Annotated[int | None, Field(ge=0, le=2**53)] = None
    """Lines after this byte instead: `next` of a page."""
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """Most lines after the place."""
    wait_s: Annotated[float, Field(ge=0.0, le=30.0)] = 0.0
    """Wait so long for the first line after the place."""


class LogFileDocument(Document):
    """The log of one process of a job."""

    component: str
    """Its name: trainer-0, rollout-shared-0, env-0."""
    size_bytes: int
    """Size."""
    modified_at: float
    """Last written."""


class LogList(Document):
    """Logs of a job's processes."""

    components: list[LogFileDocument]
    """By name."""


class LogPage(Document):
    """Lines of a log."""

    component: str
    """Whose."""
    lines: list[str]
    """Whole lines."""
    start: int
    """Byte at which the first line begins."""
    next: int
    """`after` of the next page."""
    size_bytes: int
    """Size of the log now."""
