"""Receives full weights by torch.distributed into a running SGLang server.

Owns the order of SGLang's calls, and which group the server is in: it joins once, and each push
opens the session, takes the tensors in buckets and closes it.
"""

import contextlib
from collections.abc import Generator

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

    async def enter(self, client: SglangClient, group: WeightGroup) -> None:
        """Join ``group`` unless the server is in it."""
        self.check(group)
        if not group.is_formed:
            await self.leave(client)
            with _broken(group):
                await client.join_group(group)
            self._group = group

    async def take(self, client: SglangClient, weights: BroadcastWeights, tag: str) -> None:
        """Replace the server's weights by what rank 0 sends, bucket by bucket.

        Raises:
            TroupeError: SGLang reported why it failed; no session is open any more.
        """
        try:
            await client.begin_update()
            for bucket in buckets(weights.tensors, weights.bucket_bytes):
                with _broken(weights.group):
                    await client.receive_weights(weights.group, bucket, tag)
            await client.end_update()
        except TroupeError:
            await self.leave(client)  # first: the others wait for it
            with contextlib.suppress(TroupeError):  # none was open
                await client.end_update()
            raise


@contextlib.contextmanager
def _broken(group: WeightGroup) -> Generator[None]:
    """SGLang answers alike where it refuses tensors and where another member is gone."""
    try:
        yield
    except WeightsRejectedError as error:
        raise UnavailableError(
            f"The broadcast into SGLang through the group '{group.name}' broke: {error.message} "
            "Form a new group and send the weights again."
        ) from error
