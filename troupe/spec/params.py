"""Models of a plug-in's own parameters."""

from pydantic import BaseModel, ConfigDict


class Params(BaseModel):
    """Base of a plug-in's parameters: frozen, and a misspelt one is an error.

    Example: ``class Params(troupe.Params): trim: int = Field(default=0, ge=0)``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class NoParams(Params):
    """A plug-in without parameters."""
