"""Gives each live environment a global random state of its own.

Some environments draw from the global generators of ``random`` and NumPy. Two copies in one
process would then disturb each other, and a replay would not repeat. Owns those two generators
while an environment runs; whoever waits for it is another thread of this process.
"""

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

_LOCK = threading.RLock()


class OwnRandomness:
    """The global random state that one environment believes in."""

    def __init__(self) -> None:
        self._python: Any = None
        self._numpy: Any = None

    def seed(self, seed: int) -> None:
        """Begin as ``random.seed(seed)`` and ``numpy.random.seed(seed)`` would."""
        self._python = random.Random(seed).getstate()
        self._numpy = np.random.RandomState(seed % 2**32).get_state(legacy=False)

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
