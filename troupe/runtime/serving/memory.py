"""Tunes a process's memory: loaded objects are kept from the collector, freed pages for reuse.

torch, transformers and a model are hundreds of thousands of objects that never die, and every step
takes and frees the same tensors. Scanning the former and fetching pages for the latter took a
fifth of a trainer's time on a small model. Owns these settings; never measures memory.
"""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_OF_HEAP = 32 << 20
"""The largest threshold that glibc accepts: a larger block is still returned when it is freed."""
_NEVER = -1
_NEW_OBJECTS = 20_000


def settle_heap() -> None:
    """Exclude every object that exists now from garbage collection; call it after a large load.

    Reference counts still free what is released; only cycles among these objects stay. What comes
    later is looked through each ``_NEW_OBJECTS``: an answer of SGLang is a list for each token, and
    Python's own 700 has the collector run a dozen times while one is read.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def keep_freed_memory() -> None:
    """Keep freed blocks of up to 32 MiB in the process for the next step (glibc's mallopt).

    All threads share one heap, for glibc returns what becomes free in a thread's own. The process
    keeps its peak. Call it before there are other threads. Without glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_OF_HEAP)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)


def return_freed_memory() -> None:
    """Give back what is free now (glibc's malloc_trim): what a load took is not taken again."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
