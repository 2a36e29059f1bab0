"""The state of a designed episode between steps, and its encoding as compact JSON bytes.

It holds the inner family's first state, which may hold the reference: it goes between services,
never into a prompt.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from troupe_tasks.designed.plan import Node


@dataclass(frozen=True, slots=True)
class Output:
    """What a line came to: its text, and the answer that the inner family reads in it, if any."""

    text: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """One moment: the plan (empty before the designer's act) and the outputs of its first lines."""

    inner: bytes
    plan: tuple[Node, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict[str, Output])
    is_done: bool = False
    is_won: bool = False

    @property
    def waiting(self) -> Node | None:
        """The line that is to be played next."""
        is_playing = not self.is_done and len(self.outputs) < len(self.plan)
        return self.plan[len(self.outputs)] if is_playing else None


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    document = {
        "inner": base64.b64encode(state.inner).decode(),
        "plan": [asdict(node) for node in state.plan],
        "outputs": {name: [o.text, o.answer] for name, o in state.outputs.items()},
        "is_done": state.is_done,
        "is_won": state.is_won,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw: dict[str, Any] = json.loads(data)
    return State(
        inner=base64.b64decode(raw["inner"]),
        plan=tuple(
            Node(node["name"], node["operator"], tuple(node["inputs"]), node["say"])
            for node in raw["plan"]
        ),
        outputs={name: Output(*output) for name, output in raw["outputs"].items()},
        is_done=raw["is_done"],
        is_won=raw["is_won"],
    )
