"""Seals states that an env gives out, so that a returned state is known to be intact.

A seal is a digest over the task, its parameters and the state's bytes: any replica of a job can
check what another one sealed, before and after a restart. It detects changes by accident or by a
bug, even where the task could still read the state and would judge another episode than the one
being played. It is not a signature: any caller of the env service can make one.

A state may come without a seal (an older router drops it, an older env makes none) or with one of
a newer version; such a state is accepted unchecked. If a task then fails on it, the request is
refused, because nothing vouches for the state; a failure on a sealed state is the task's bug.
"""

from hashlib import blake2b
from hmac import compare_digest

from troupe.episodes.sealed import SealedState
from troupe.errors import StateChangedError
from troupe.runtime.telemetry import metrics

VERSION = b"\x01"
"""First byte of a seal. It grows when what the digest is taken over changes."""
_PERSON = b"troupe.env.state"
_NUM_DIGEST_BYTES = 16


class Seals:
    """Makes and checks the seals of one task with one set of parameters."""

    def __init__(self, task: str, *settings: str) -> None:
        """``settings``: parameters as JSON, and the reward function where there is one."""
        self._task = task
        self._begun = blake2b(digest_size=_NUM_DIGEST_BYTES, person=_PERSON)
        for part in (task, *settings):
            data = part.encode("utf-8", "surrogatepass")
            self._begun.update(len(data).to_bytes(8, "big") + data)

    def sealed(self, state: bytes) -> SealedState:
        """``state`` with its seal."""
        return SealedState(state, self._seal_of(state))

    def vouches(self, state: bytes, seal: bytes) -> bool:
        """Whether an env gave out ``state`` as it is; False when ``seal`` says nothing of it.

        Raises:
            StateChangedError: the seal is another state's.
        """
        if not seal.startswith(VERSION):
            return False
        if compare_digest(seal, self._seal_of(state)):
            return True
        metrics.ENV_REFUSED_STATES.labels("changed").inc()
        raise StateChangedError(
            f"The {len(state)} state bytes of task {self._task!r} do not fit their seal: they, the "
            "seal or the task's parameters changed since an env service issued them. Send state "
            "and seal as Reset or Step returned them, with the same task; if nobody changed them "
            "on purpose, a machine or a proxy on the way damages data.",
            pointer="/state",
        )

    def _seal_of(self, state: bytes) -> bytes:
        digest = self._begun.copy()
        digest.update(state)
        return VERSION + digest.digest()
