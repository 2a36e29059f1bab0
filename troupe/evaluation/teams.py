"""Teams of an evaluation: the policy of each seat, read from ``--policy`` texts.

Pure except for the lookups of ``refs``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from troupe.errors import InvalidArgumentError
from troupe.evaluation.refs import PolicyRef, RefOptions, read_ref
from troupe.spec.issues import suggest

OTHERS = "*"
"""Stands for every agent that is not named."""
_SEAT = re.compile(r"^([a-z][a-z0-9_-]*|\*)=(.+)$")


@dataclass(frozen=True, slots=True)
class Team:
    """One policy on each seat; ``label`` is its name in tables and files.

    Example: ``Team("scripted", {"tool": ScriptedRef("scripted"), ...})``.
    """

    label: str
    seats: Mapping[str, PolicyRef]


def read_teams(
    texts: Sequence[str], agents: Sequence[str], options: RefOptions | None = None
) -> list[Team]:
    """The teams that ``texts`` name, in order.

    A text without ``=`` fills every seat. ``agent=POLICY`` fills one, and ``*=POLICY`` those that
    are left; several of them, separated by commas or in consecutive texts, form one team until a
    seat repeats. A text of seats with ``*=`` is a team of its own, and so is a ``*=`` where none is
    left.
    """
    return [_team(seats, agents, options or RefOptions()) for seats in _gathered(texts, agents)]


def slug(label: str) -> str:
    """``label`` as a file name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-.")[-80:] or "policy"


def _gathered(texts: Iterable[str], agents: Sequence[str]) -> list[dict[str, str]]:
    """Seat -> text for each team; a team with one policy for all seats is ``{"*": text}``."""
    teams: list[dict[str, str]] = []
    is_open = False
    for text in texts:
        pieces = [_SEAT.match(piece.strip()) for piece in text.split(",")]
        if not all(pieces):
            teams.append({OTHERS: text})
            is_open = False
            continue
        seats = {match[1]: match[2] for match in filter(None, pieces)}
        if len(seats) < len(pieces):
            raise InvalidArgumentError(f"--policy {text} names a seat twice; name each once")
        is_whole = OTHERS in seats and (len(seats) > 1 or (is_open and {*agents} <= {*teams[-1]}))
        if is_whole or not is_open or seats.keys() & teams[-1].keys():
            teams.append({})
        teams[-1] |= seats
        is_open = not (OTHERS in seats and len(seats) > 1)
    return teams


def _team(seats: Mapping[str, str], agents: Sequence[str], options: RefOptions) -> Team:
    for agent in seats:
        if agent not in agents and agent != OTHERS:
            raise InvalidArgumentError(
                f"--policy {agent}={seats[agent]}: no agent is called '{agent}'; "
                f"{suggest(agent, agents)}"
            )
    missing = [agent for agent in agents if agent not in seats and OTHERS not in seats]
    if missing:
        assignment = ",".join(f"{agent}={text}" for agent, text in seats.items())
        raise InvalidArgumentError(
            f"--policy {assignment} leaves {', '.join(missing)} without a policy; add "
            f"{','.join(f'{agent}=POLICY' for agent in missing)} or *=POLICY"
        )
    texts = {agent: seats.get(agent, seats.get(OTHERS, "")) for agent in agents}
    is_uniform = list(seats) == [OTHERS]
    label = (
        seats[OTHERS]
        if is_uniform
        else ",".join(f"{agent}={text}" for agent, text in texts.items())
    )
    refs = {agent: read_ref(text, agent, options) for agent, text in texts.items()}
    return Team(label, refs)
