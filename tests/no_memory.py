"""A machine on which messages can't be read for want of memory."""

from typing import Any

from google.protobuf.message import DecodeError


class NoMemory:
    """Stands for a message type; what protobuf says when there is nothing to read it into."""

    @staticmethod
    def FromString(data: bytes) -> Any:
        """Never reads."""
        raise DecodeError("Error parsing message with type 'Message': Arena alloc failed")
