"""State bytes with the seal of the env that issued them.

A seal travels beside its state, so code that only passes states on can ignore it. A state without
a seal (of an in-process environment, or of an older env) is plain bytes. Never makes or checks a
seal: the env service does.
"""


class SealedState(bytes):
    """A state that the env service issued. Equal to its bytes; ``seal`` is opaque.

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
