"""A version that is nowhere but in its learner: sent from the tensors that the learner trains.

Owns the check that they are still that version's. Never copies the model.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from torch import Tensor

from troupe.api.records.v1.records_pb2 import TensorEntry, WeightsManifest
from troupe.errors import UnavailableError
from troupe.runtime.weights import TensorSum, digest_of_sums, header_bytes_of
from troupe.runtime.weights.group import size_of
from troupe_trainer.model.model import PolicyModel


class OnThread(Protocol):
    """Runs work on the thread that alone touches the model."""

    def __call__(self, work: Callable[[], Any], /) -> Awaitable[Any]:
        """Run ``work`` there."""
        ...


class LiveWeights:
    """The present weights of ``model``, until it learns on."""

    def __init__(self, model: PolicyModel, on_thread: OnThread) -> None:
        self._model = model
        self._revision = model.revision
        self.on_thread = on_thread

    def check(self) -> None:
        """Raise UnavailableError when the model has learnt on; call it on the thread."""
        if self._model.revision != self._revision:
            raise UnavailableError(
                f"The trainer has learnt on since this version of policy '{self._model.policy}', "
                "and keeps no file of it. The replica is sent the next version."
            )

    def each(self, take: Callable[[str, Tensor], None]) -> None:
        """Give ``take`` each tensor; call it on the thread. Raises as ``check`` does."""
        self.check()
        self._model.each_weight(take)


def live_manifest(
    sums: list[TensorSum], *, policy: str, policy_version: int, job_id: str
) -> WeightsManifest:
    """The manifest of full weights without a file, in the order of ``sums``."""
    header = header_bytes_of((t.name, t.dtype, t.shape) for t in sums)
    return WeightsManifest(
        policy=policy,
        policy_version=policy_version,
        kind="full",
        size_bytes=len(header) + sum(map(size_of, sums)),
        sha256=hashlib.sha256(header).hexdigest(),
        tensor_digest=digest_of_sums(sums),
        tensors=[
            TensorEntry(name=t.name, dtype=t.dtype, shape=t.shape, digest=t.digest) for t in sums
        ],
        job_id=job_id,
    )
