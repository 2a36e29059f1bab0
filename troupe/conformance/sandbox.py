"""Opens the installed sandbox for families that run programs."""

from troupe import plugins
from troupe.sandbox.sandbox import Sandbox
from troupe.tasks.family import TaskFamily, needs_sandbox

DEFAULT = "local"


def sandbox_for(family: TaskFamily, name: str = DEFAULT) -> Sandbox | None:
    """The sandbox called ``name`` if ``family`` needs one; the caller closes it.

    Raises InvalidArgumentError when one is needed and not installed.
    """
    if not needs_sandbox(family):
        return None
    return plugins.load(plugins.SANDBOXES, name)()
