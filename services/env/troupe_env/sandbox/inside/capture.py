"""Captures a program's output, up to a cap."""

import errno
import os

_CHUNK = 1 << 16


class Capture:
    """Keeps the first ``most`` bytes of a pipe and knows whether there were more."""

    def __init__(self, number: int, most: int) -> None:
        self.number = number
        self.data = bytearray()
        self.is_over = False
        self._most = most

    def take(self) -> bool:
        """Read once; False at the end of the pipe."""
        part = os.read(self.number, _CHUNK)
        room = self._most - len(self.data)
        self.data += part[:room]
        self.is_over = self.is_over or len(part) > room
        return bool(part)

    def drain(self) -> None:
        """Read what is there, without waiting, no further than the cap."""
        os.set_blocking(self.number, False)
        try:
            while not self.is_over and self.take():
                pass
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
