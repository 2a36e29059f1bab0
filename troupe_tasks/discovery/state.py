"""The state of a discovery episode between steps, and its encoding as compact JSON bytes."""

import json
from dataclasses import asdict, dataclass

MAX_TRIED = 3


@dataclass(frozen=True, slots=True)
class Tried:
    """A formula of the theorist: its text, its score on the readings, and on hidden points.

    ``tenths`` is the latter to one digit: more would be fished for.
    """

    formula: str
    own: float
    tenths: int


@dataclass(frozen=True, slots=True)
class DiscoveryState:
    """One moment of an episode.

    ``readings`` are values in the order of the law's quantities, and what was measured; ``best``
    is the highest worth of a formula so far, ``best_own`` the best score on own readings that was
    paid.
    """

    key: str
    best: float = 0.0
    best_own: float = 0.0
    informed: float = 0.0
    readings: tuple[tuple[tuple[float, ...], float], ...] = ()
    tried: tuple[Tried, ...] = ()

    @property
    def is_solved(self) -> bool:
        """Whether the law was named."""
        return self.best >= 1.0


def encode_state(state: DiscoveryState) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":")).encode()


def decode_state(data: bytes) -> DiscoveryState:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    raw["readings"] = tuple((tuple(point), found) for point, found in raw["readings"])
    raw["tried"] = tuple(Tried(**item) for item in raw["tried"])
    return DiscoveryState(**raw)
