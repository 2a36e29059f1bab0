"""Reads one line for a robot: ``move x y z``, ``grip on``, ``grip off`` or ``wait``.

Prose around the line is allowed. Numbers are centimetres, clipped to what exists; never a number
that is not finite.
"""

import re
from dataclasses import dataclass

_NUMBER = r"(-?\d{1,4}(?:\.\d{1,3})?)"
_LINE = re.compile(
    rf"[-*>`\s]*(?:(?P<who>alice|bob)\s*:\s*)?(?:move {_NUMBER},? {_NUMBER},? {_NUMBER}"
    r"|grip (?P<grip>on|off)|(?P<wait>wait))[`.\s]*",
    re.IGNORECASE,
)
MAX_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Command:
    """What one robot is told: an aim, a grip, or neither (wait).

    Example: ``Command((10.0, -5.0, 30.0), None)``.
    """

    aim: tuple[float, float, float] | None = None
    grip: bool | None = None

    def text(self) -> str:
        """The line; ``read_commands`` is the inverse."""
        if self.aim is not None:
            return "move " + " ".join(f"{number:g}" for number in self.aim)
        if self.grip is not None:
            return "grip on" if self.grip else "grip off"
        return "wait"


WAIT = Command()


def read_commands(action: str, speaker: str | None) -> dict[str | None, list[Command]]:
    """Commands by robot, in their order; a line that names no robot is ``speaker``'s."""
    commands: dict[str | None, list[Command]] = {}
    for line in action[:MAX_CHARS].splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        who = match["who"].lower() if match["who"] else speaker
        if match["wait"]:
            command = WAIT
        elif match["grip"]:
            command = Command(grip=match["grip"].lower() == "on")
        else:
            x, y, z = (float(match[n]) for n in (2, 3, 4))
            command = Command((x, y, z))
        commands.setdefault(who, []).append(command)
    return commands
