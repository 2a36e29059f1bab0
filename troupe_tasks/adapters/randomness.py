"""Gives each live environment a global random state of its own.

Some environments draw from the global generators of ``random`` and NumPy. Two copies in one
process would then disturb each other, and a replay would not repeat. Owns those two generators
while an environment runs; whoever waits for it is another thread of this process.
"""

import random
import struct
import threading
from base64 import b64decode, b64encode
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

_LOCK = threading.RLock()
_STATE = struct.Struct("<625I?d")
"""Of a Mersenne Twister, which both generators are: its words and its place among them, and
whether there is a number left of a pair of normal ones, and which."""


class OwnRandomness:
    """The global random state that one environment believes in; its constructor draws from seed 0,
    as it is made before its episode's seed is known."""

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Begin as ``random.seed(seed)`` and ``numpy.random.seed(seed)`` would."""
        self._python: Any = random.Random(seed).getstate()
        self._numpy: Any = np.random.RandomState(seed % 2**32).get_state(legacy=False)

    def saved(self) -> tuple[str, str]:
        """Both states as text, Python's and NumPy's; ``restore`` takes them."""
        _, words, left = self._python
        python = _STATE.pack(*words, left is not None, left or 0.0)
        drawn, key = self._numpy, self._numpy["state"]
        numpy = _STATE.pack(*key["key"].tolist(), key["pos"], drawn["has_gauss"], drawn["gauss"])
        return b64encode(python).decode(), b64encode(numpy).decode()

    def restore(self, python: str, numpy: str) -> None:
        """Go on from what ``saved`` gave; an empty text leaves its generator as it is."""
        if python:
            *words, has_left, left = _STATE.unpack(b64decode(python))
            self._python = (self._python[0], tuple(words), left if has_left else None)
        if numpy:
            *key, pos, has_gauss, gauss = _STATE.unpack(b64decode(numpy))
            state = {"key": np.array(key, np.uint32), "pos": pos}
            drawn = {"state": state, "has_gauss": int(has_gauss), "gauss": gauss}
            self._numpy = {**self._numpy, **drawn}

    @contextmanager
    def installed(self) -> Generator[None]:
        """Run the block with this state in place of the process's, alone among threads."""
        with _LOCK:
            outer = random.getstate(), np.random.get_state(legacy=False)
            random.setstate(self._python)
            np.random.set_state(self._numpy)
            try:
                yield
            finally:
                self._python = random.getstate()
                self._numpy = np.random.get_state(legacy=False)
                random.setstate(outer[0])
                np.random.set_state(outer[1])
