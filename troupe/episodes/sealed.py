"""State bytes that carry the seal of the env that gave them out.

A seal travels beside its state, so whoever only passes states on needs to know nothing of it, and
a state without one (of an environment in this process, or of an older env) is plain bytes. Never
makes or checks a seal: the env service does.
"""


class SealedState(bytes):
    """A state as the env service gave it out. Equal to its bytes; ``seal`` is opaque.

    Example: ``SealedState(b'{"at":[0,0]}', seal)``.
    """

    seal: bytes

    def __new__(cls, state: bytes, seal: bytes = b"") -> "SealedState":
        """``state`` with the seal that came with it."""
        sealed = super().__new__(cls, state)
        sealed.seal = seal
        return sealed


def seal_with(state: bytes) -> bytes:
    """The seal that ``state`` carries, or empty."""
    return state.seal if isinstance(state, SealedState) else b""


def with_seal(state: bytes, seal: bytes) -> bytes:
    """``state``, carrying ``seal`` if there is one."""
    return SealedState(state, seal) if seal else state
