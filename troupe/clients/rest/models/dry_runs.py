"""REST models of dry runs."""

from typing import Annotated

from pydantic import Field

from troupe.clients.rest.models.base import Document, JsonObject, Parameters


class DryRunQuery(Parameters):
    """How many tasks are played."""

    num_tasks: Annotated[int, Field(ge=1, le=10)] = 3
    """Tasks of the train split."""


class DryRunDocument(Document):
    """What was played, with scripted agents."""

    episodes: list[JsonObject]
    """An episode for each task: groups, candidates, rewards, advantages."""
    notes: list[str]
    """Models that a job of this spec would lack; a dry run needs none."""
