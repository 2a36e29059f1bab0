"""Build: two builders with different materials raise one blueprint from a shared stock."""

from troupe_tasks.building.family import Build, BuildParams

__all__ = ["Build", "BuildParams"]
