"""One torch.distributed group of the trainer and some replicas, kept from push to push.

Owns rank 0, its store and its communicator. Never decides who is a member.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import TCPStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage]

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.runtime.weights.group import Broadcasts, WeightGroup, join_group
from troupe_trainer.checkpoint.live import LiveWeights

Member = tuple[str, str]
"""A replica and its incarnation."""


class PushGroup:
    """Rank 0 of a group whose other members are the ranks of ``members``, in order.

    All methods but ``give_up`` block.
    """

    def __init__(
        self, name: str, members: Mapping[Member, int], *, host: str, backend: str, timeout_s: float
    ) -> None:
        self.members = dict(members)
        self._name, self._host, self._backend = name, host, backend
        self._timeout_s = timeout_s
        limit = timedelta(seconds=timeout_s)
        try:
            self._store: Any = TCPStore(host, 0, None, True, limit, wait_for_workers=False)
        except RuntimeError as error:
            raise InvalidArgumentError(
                f"The trainer can't open the store of its weight group at {host} ({error}). Set "
                "TROUPE_TRAINER_ADVERTISE_HOST to an address of the trainer's own machine."
            ) from error
        self._port = self._store.port
        self._communicator: Any = None

    def places(self) -> dict[Member, WeightGroup]:
        """The group as each member enters it."""
        places: dict[Member, WeightGroup] = {}
        rank = 1
        for member, num_ranks in self.members.items():
            places[member] = self._place(rank)
            rank += num_ranks
        return places

    def form(self) -> None:
        """Wait for the members unless the group stands.

        Raises:
            UnavailableError: not all of them came in time; it is given up.
        """
        self._whole(self._form)

    def send(self, live: LiveWeights, bucket_bytes: int) -> None:
        """Send each tensor; a bucket is under way, and the tensor after it. ``form`` comes first.

        Raises:
            UnavailableError: a member is gone or silent; the group is given up.
        """
        self._whole(lambda: self._send(live, bucket_bytes))

    def _whole(self, work: Callable[[], None]) -> None:
        problem = ""
        try:
            work()
        except RuntimeError as error:  # torch raises its own kinds
            problem = str(error) or repr(error)
        if problem:  # outside the handler: a traceback would keep the connections
            self.give_up()
            raise UnavailableError(
                f"The weight group '{self._name}' of {len(self.members)} replicas broke "
                f"({problem}). Another one is formed with the replicas that answer."
            )

    def _form(self) -> None:
        if self._communicator is None:
            communicator = join_group(
                distributed_c10d, self._store, self._place(0), 0, timeout_s=self._timeout_s
            )
            if self._store is None:
                raise RuntimeError("it was given up while it was formed")
            self._communicator = communicator

    def _send(self, live: LiveWeights, bucket_bytes: int) -> None:
        if self._communicator is None:
            raise RuntimeError("it was given up before the first bucket")
        going = Broadcasts(distributed_c10d, self._communicator, timeout_s=self._timeout_s)
        device = "cuda" if self._backend == "nccl" else "cpu"

        def send(_: str, tensor: Tensor) -> None:
            going.start(tensor.to(device))
            while going.num_bytes > bucket_bytes:  # ranks gather the next tensor beside these
                going.take()

        live.each(send)
        while going:
            going.take()
        if self._backend == "nccl":
            torch.cuda.synchronize()

    def give_up(self) -> None:
        """Close the connections, so that no member waits. A push under way fails."""
        if self._communicator is not None and self._backend == "nccl":
            self._communicator.abort()  # else its wait has no end; gloo's has a time-out
        self._communicator = None
        self._store = None

    def _place(self, rank: int) -> WeightGroup:
        world_size = 1 + sum(self.members.values())
        is_formed = self._communicator is not None
        return WeightGroup(
            self._host, self._port, self._name, world_size, rank, self._backend, is_formed
        )
