"""REST models of the names that specs use: task families and algorithms."""

from typing import Any

from pydantic import Field

from troupe.clients.rest.models.base import Document


class TaskFamilyDocument(Document):
    """A kind of task that jobs can name; ``error`` when it cannot be loaded."""

    name: str
    """Name in specs."""
    error: str | None = None
    """Why it cannot be loaded here."""
    summary: str = ""
    """One line."""
    agents: list[str] = Field(default_factory=list[str])
    """Seats of the team."""
    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    """JSON schema of its parameters."""
    local_terms: dict[str, dict[str, float]] = Field(default_factory=dict[str, dict[str, float]])
    """Reward terms of each agent with their default weights."""
    return_bound: float | None = None
    """Largest sum of team rewards in one episode."""


class TaskList(Document):
    """Installed task families."""

    tasks: list[TaskFamilyDocument]
    """By name."""


class AlgorithmDocument(Document):
    """An installed algorithm."""

    name: str
    """Name in specs."""
    summary: str
    """One line."""


class AlgorithmList(Document):
    """Installed algorithms."""

    algorithms: list[AlgorithmDocument]
    """By name."""
