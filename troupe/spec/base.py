"""What every part of a job spec shares: its base model, and the form of names."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9_-]{0,38}[a-z0-9])?$")]
"""Lower-case letters, digits, '-' and '_'; starts with a letter; at most 40 characters."""


MAX_NAMED = 256
"""Agents, and policies, of one job. Checks compare names with names, so their time is bounded."""


PluginParams = dict[str, Any]
"""Parameters that only the plug-in knows: its model checks them when it is loaded."""


def is_empty(value: Any) -> bool:
    """A part that is not given is not written: spec.json and digests stay as they are."""
    return not value


class SpecModel(BaseModel):
    """Base of every part of a spec: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
