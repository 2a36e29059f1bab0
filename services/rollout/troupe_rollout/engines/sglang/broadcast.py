"""Receives full weights by torch.distributed into a running SGLang server.

Owns the order of SGLang's calls, and which group the server is in: it joins once, and each push
opens the session, takes the tensors in buckets and closes it. The server's old weights are gone
once the first tensor has arrived.
"""

import asyncio
import contextlib

from troupe.errors import TroupeError, UnavailableError, WeightsRejectedError
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.weights.group import WeightGroup, buckets
from troupe_rollout.engines.sglang.client import SglangClient


class SglangMembership:
    """The group that one server is in, until a push fails or the server is another one."""

    def __init__(self) -> None:
        self._group: WeightGroup | None = None

    def forget(self) -> None:
        """The server is a new process, which is in no group."""
        self._group = None

    def check(self, group: WeightGroup) -> None:
        """Raise UnavailableError where the server should be in ``group`` and is not."""
        if group.is_formed and (self._group is None or self._group.name != group.name):
            raise UnavailableError(
                f"The SGLang server is not in the weight group '{group.name}': it was restarted, "
                "or left after a failure. Form a new group and send the weights again."
            )

    async def leave(self, client: SglangClient) -> None:
        """Leave, so that nobody waits for the server."""
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(TroupeError):
                await client.leave_group(group)

    async def receive(self, client: SglangClient, weights: BroadcastWeights, tag: str) -> None:
        """Replace the server's weights by what rank 0 sends.

        Raises:
            TroupeError: SGLang reported why it failed; no session is open any more.
            TimeoutError: it does not answer in ``weights.timeout_s``; what it holds is unknown.
        """
        async with asyncio.timeout(weights.timeout_s):
            try:
                await self._enter(client, weights.group)
                await client.begin_update()
                for bucket in buckets(weights.tensors, weights.bucket_bytes):
                    await client.receive_weights(weights.group, bucket, tag)
                await client.end_update()
            except TroupeError:  # not on a time-out: an unresponsive server would block this
                await self.leave(client)  # first: the others wait for it
                with contextlib.suppress(WeightsRejectedError):  # none was open
                    await client.end_update()
                raise

    async def _enter(self, client: SglangClient, group: WeightGroup) -> None:
        self.check(group)
        if not group.is_formed:
            await self.leave(client)
            self._group = group
            await client.join_group(group)
