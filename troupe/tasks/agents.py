"""The check that every environment makes of the name of who acts."""

from collections.abc import Collection

from troupe.errors import InvalidArgumentError


def known_agent(agent: str, agents: Collection[str], *, task: str) -> str:
    """``agent`` itself; raises InvalidArgumentError, which names ``task``, if it is another's."""
    if agent not in agents:
        raise InvalidArgumentError(
            f"{task} has no agent {agent!r}; its agents are {', '.join(agents)}"
        )
    return agent
