"""What a process keeps for its life, kept away from the garbage collector.

torch, transformers and a model are hundreds of thousands of objects that never die; going through
them again and again was a fourteenth of a trainer's time on a small model.
"""

import gc


def settle_heap() -> None:
    """Call it when something large that stays was loaded: what exists now is not looked at again.

    Reference counts still free what is let go of; only cycles among these objects stay.
    """
    gc.collect()
    gc.freeze()
