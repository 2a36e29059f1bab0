"""The state of a Verilog episode between turns, and its encoding as compact JSON bytes."""

import json
from dataclasses import asdict, dataclass

from troupe_tasks.verilog.circuit import Circuit
from troupe_tasks.verilog.instances import circuit_of
from troupe_tasks.verilog.rows import Row


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode.

    ``instance`` is the task's text. ``gave`` is what the last module gives for ``rows``, None where
    it is unknown or where nothing was built. ``refusal`` says why the last module was not built.
    """

    instance: str
    rows: tuple[Row, ...] = ()
    row_refusals: tuple[str, ...] = ()
    source: str = ""
    refusal: str = ""
    is_built: bool = False
    gave: tuple[int | None, ...] = ()
    best: float = 0.0
    best_kills: float = 0.0
    is_solved: bool = False

    @property
    def circuit(self) -> Circuit:
        """What the module must do."""
        return circuit_of(self.instance)


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    raw["rows"] = tuple((given, wanted) for given, wanted in raw["rows"])
    raw["row_refusals"], raw["gave"] = tuple(raw["row_refusals"]), tuple(raw["gave"])
    return State(**raw)
