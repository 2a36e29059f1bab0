"""The state of a repair between turns, and its encoding as compact JSON bytes."""

import json
from dataclasses import asdict, dataclass, field

from troupe_tasks.repair.instance import Instance, instance_of

MAX_HANDED = 6
MAX_FOUND = 5


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode. ``edits`` are the files that the fixer changed.

    ``found`` is what the reader sees of its last commands, ``handed`` what the fixer sees,
    ``outcomes`` what the tests of the repository gave after the last edit.
    """

    instance: Instance
    edits: dict[str, str] = field(default_factory=dict[str, str])
    found: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    is_located: bool = False
    """Whether the faulty line was handed to the fixer once."""
    best: float = 0.0
    is_solved: bool = False

    @property
    def files(self) -> dict[str, str]:
        """The repository as it stands."""
        return {**self.instance.files, **self.edits}


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    for name in ("found", "handed", "refusals", "outcomes"):
        raw[name] = tuple(raw[name])
    raw["instance"] = instance_of(raw["instance"])
    return State(**raw)
