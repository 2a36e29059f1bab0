"""Reads server-sent events, line by line. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from troupe.clients.rest.models import JobEvent
from troupe.errors import TroupeError


@dataclass(slots=True)
class SseReader:
    """Takes the lines of one ``text/event-stream``; comments (keep-alives) are skipped."""

    _fields: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, line: str) -> JobEvent | None:
        """The event that ``line`` completes, or None."""
        if line.startswith(":"):
            return None
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            held = self._fields
            held[name] = f"{held[name]}\n{value}" if name in held else value
            return None
        fields, self._fields = self._fields, {}
        return _event(fields) if "data" in fields else None


def parse_sse(lines: Iterator[str]) -> Iterator[JobEvent]:
    """Events of a ``text/event-stream``."""
    reader = SseReader()
    for line in lines:
        event = reader.take(line)
        if event is not None:
            yield event


def _event(fields: Mapping[str, str]) -> JobEvent:
    try:
        document = json.loads(fields["data"])
        known = {k: v for k, v in document.items() if k in ("type", "occurred_at", "source")}
        known.setdefault("type", fields.get("event", "message"))
        data = document["data"] if isinstance(document.get("data"), dict) else document
        return JobEvent(id=fields.get("id", ""), data=data, **known)
    except (ValueError, AttributeError) as error:
        raise TroupeError(f"the router sent an event that cannot be read: {error}") from error
