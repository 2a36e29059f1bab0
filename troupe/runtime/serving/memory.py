"""What a process keeps of its memory: loaded objects from the collector, freed pages for reuse.

torch, transformers and a model are hundreds of thousands of objects that never die, and every step
takes and frees the same tensors. Going through the former and fetching pages for the latter were a
fifth of a trainer's time on a small model. Owns the two settings; never measures memory.
"""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_OF_HEAP = 32 << 20
"""The most that glibc takes: a larger block is still given back when it is freed."""
_KEPT_BYTES = 2**31 - 1


def settle_heap() -> None:
    """Call it when something large that stays was loaded: what exists now is not looked at again.

    Reference counts still free what is let go of; only cycles among these objects stay.
    """
    gc.collect()
    gc.freeze()


def keep_freed_memory() -> None:
    """Freed blocks of up to 32 MiB stay with the process for the next step (glibc's mallopt).

    The process keeps what it needed at most. Without glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_OF_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
