"""The state of a writing episode between steps, and its encoding as compact JSON bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from troupe_tasks.writing.row import WritingRow


@dataclass(frozen=True, slots=True)
class State:
    """One moment of an episode. ``texts`` maps agents to what they wrote last.

    ``reward`` is what the present pair is worth, 0 before there is one; ``is_done`` ends the
    episode.
    """

    row: WritingRow
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    reward: float = 0.0
    is_done: bool = False


def encode_state(state: State) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    document = {
        "row": state.row.model_dump(mode="json", exclude_defaults=True),
        "texts": dict(state.texts),
        "reward": state.reward,
        "is_done": state.is_done,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_state(data: bytes) -> State:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    return State(WritingRow.model_validate(raw["row"]), raw["texts"], raw["reward"], raw["is_done"])
