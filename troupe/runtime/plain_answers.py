"""Reads the answer of an HTTP server that a user chose: as it travels, and up to a size.

What is compressed may inflate to any size, so it is not taken: ask with ``PLAIN``.
"""

from typing import TYPE_CHECKING

from troupe.errors import UnavailableError

if TYPE_CHECKING:
    import httpx

PLAIN = {"Accept-Encoding": "identity"}
"""Headers that ask for an answer that is not compressed."""


def read_plain(response: "httpx.Response", where: str, max_bytes: int, advice: str) -> bytes:
    """The body of a streamed ``response``; ``advice``: what to do about one that is too long.

    Raises:
        UnavailableError: it is compressed, or longer than ``max_bytes``.
    """
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        # Its name is not told: a stranger's server may write anything there.
        raise UnavailableError(
            f"{where} answered in a compressed form, and plain bytes were asked for; switch the "
            "compression of the server or its proxy off"
        )
    raw = bytearray()
    for chunk in response.iter_raw():
        raw += chunk
        if len(raw) > max_bytes:
            raise UnavailableError(f"{where} answered with more than {max_bytes} bytes; {advice}")
    return bytes(raw)
