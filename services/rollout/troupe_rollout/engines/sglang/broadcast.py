"""Receives full weights by torch.distributed into a running SGLang server.

Owns the order of SGLang's calls: join, open the session, take the tensors in buckets, close, leave.
The server's old weights are gone once the first tensor has arrived; the caller restores them.
"""

import asyncio
import contextlib
import math
from collections.abc import Sequence

from troupe.errors import TroupeError, WeightsRejectedError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.weights import TensorSum
from troupe.runtime.weights.layout import ITEM_BYTES
from troupe_rollout.engines.sglang.client import SglangClient

BUCKET_BYTES = 512 * 2**20
"""SGLang keeps a bucket beside the model until it is copied."""


async def receive_into(client: SglangClient, weights: BroadcastWeights, tag: str) -> None:
    """Replace the server's weights by what rank 0 sends.

    Raises:
        TroupeError: SGLang reported why it failed; no session is open any more.
        TimeoutError: it does not answer within ``weights.timeout_s``; what it holds is unknown.
    """
    async with asyncio.timeout(weights.timeout_s):
        await client.join_group(weights.group)
        try:
            await client.begin_update()
            for bucket in buckets(weights.tensors, BUCKET_BYTES):
                await client.receive_weights(weights.group, bucket, tag)
            await client.end_update()
        except TroupeError:  # not on a time-out: an unresponsive server would block this
            with contextlib.suppress(WeightsRejectedError):  # none was open
                await client.end_update()
            with contextlib.suppress(TroupeError):
                await client.leave_group(weights.group)
            raise
        await client.leave_group(weights.group)


def buckets(tensors: Sequence[TensorSum], size: int) -> list[list[TensorSum]]:
    """Consecutive runs of tensors of about ``size`` bytes; a larger tensor forms its own run."""
    runs: list[list[TensorSum]] = []
    room = 0
    for tensor in tensors:
        needs = math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
        if not runs or needs > room:
            runs.append([])
            room = size
        runs[-1].append(tensor)
        room -= needs
    return runs
