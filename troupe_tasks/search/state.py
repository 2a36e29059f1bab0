"""The state of a search episode between steps, and its encoding as compact JSON bytes."""

import json
from dataclasses import asdict, dataclass

MAX_QUERY_CHARS = 200
MAX_NOTE_CHARS = 160


@dataclass(frozen=True, slots=True)
class Opened:
    """A page that was opened, cut. One title may have many: an article's passages."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchState:
    """One moment of an episode.

    ``query`` and ``page`` are the last query and the titles that it showed; ``shown`` and ``led``
    are the supporting titles that were shown and that a note has named; ``queries`` counts pages.
    """

    key: str
    query: str = ""
    page: tuple[tuple[str, str], ...] = ()
    opened: tuple[Opened, ...] = ()
    shown: tuple[str, ...] = ()
    led: tuple[str, ...] = ()
    note: str = ""
    answer: str | None = None
    is_right: bool = False

    @property
    def is_done(self) -> bool:
        """Whether an answer was given."""
        return self.answer is not None


def encode_state(state: SearchState) -> bytes:
    """Opaque state bytes; ``decode_state`` is the inverse."""
    return json.dumps(asdict(state), separators=(",", ":"), ensure_ascii=False).encode()


def decode_state(data: bytes) -> SearchState:
    """The state that ``encode_state`` wrote."""
    raw = json.loads(data)
    raw["page"] = tuple((title, snippet) for title, snippet in raw["page"])
    raw["opened"] = tuple(Opened(**item) for item in raw["opened"])
    for name in ("shown", "led"):
        raw[name] = tuple(raw[name])
    return SearchState(**raw)
