"""The processes of one trainer: membership, rank 0's instructions, and sums over all ranks.

A key in the store tells the others that a message comes; the message itself travels over the
process group (``exchange``), so that neither a step's groups nor a state meets a limit of size.

Rank 0 is the service; it tells the others which method of which policy to run, and all run it at
once, so that the collectives inside match. Owns torch.distributed. Never sees groups or Redis.
"""

import contextlib
import functools
import hashlib
import json
import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from troupe.errors import InvalidArgumentError, JobFailedError
from troupe_trainer.model.ranks.exchange import gathered_numbers, receive, send
from troupe_trainer.model.ranks.notes import Notes
from troupe_trainer.model.ranks.wire import Message, decode, encode
from troupe_trainer.model.shares import Dealt

_T = TypeVar("_T")

JOIN_S = 300.0
"""Time for all ranks to come, and for one collective."""
_SEEN_S = 5.0
"""Time for a mount to show a new file to the other ranks."""
_SHORT_BYTES = 1 << 20
"""A message's document up to here is in its note in the store, which refuses more than 8 MiB. So
the end can be told to ranks that are held up in a collective."""
_WITH = b"document:"
END = "!end"
LOAD = "!load"
SEES = "!sees"
_ON_ALL_RANKS = "_runs_on_all_ranks"


class Ranks:
    """A single process: nobody to instruct and nothing to sum."""

    rank = 0
    size = 1
    num_shards = 1
    """Ranks that together hold the weights once; the first so many hold the first copy."""
    mesh: DeviceMesh | None = None

    @contextlib.contextmanager
    def telling(self, policy: str, method: str, args: tuple[Any, ...]) -> Generator[None]:
        """Let the other ranks run ``method`` of ``policy`` at the same time."""
        _ = policy, method, args
        yield

    def added(self, sums: Mapping[str, float], maxima: Mapping[str, float]) -> dict[str, float]:
        """Over all ranks: the sums of ``sums`` and the largest of ``maxima``."""
        return {**sums, **maxima}

    def names_of_all(self, names: Iterable[str]) -> list[str]:
        """The names that any rank gives, sorted."""
        return sorted(names)

    def failure(self) -> str | None:
        """Rank 0: why another rank alone can't go on, which would leave this one waiting."""
        return None

    def tell(self, message: Message) -> None:
        """Give every other rank a (policy, method, arguments) to run."""

    def gathered(self, values: Tensor, sizes: list[int]) -> list[Tensor]:
        """On rank 0: each rank's vector ``values``, of the given lengths; empty on the others."""
        _ = sizes
        return [values]

    def num_blind(self, path: Path) -> int:
        """Rank 0: how many other ranks do not see the file ``path``."""
        _ = path
        return 0

    def end(self) -> None:
        """Let the other ranks end."""


SOLO = Ranks()


class Spread(Ranks):
    """Several processes. Make it with ``join``."""

    def __init__(self, notes: Notes, rank: int, size: int, device: str, num_shards: int) -> None:
        self.rank, self.size, self.num_shards = rank, size, num_shards
        shape = (size,) if num_shards == size else (size // num_shards, num_shards)
        names = ("copies", "shards")[-len(shape) :]
        self.mesh = init_device_mesh(device, shape, mesh_dim_names=names)
        self._notes = notes
        self._depth = 0

    @contextlib.contextmanager
    def telling(self, policy: str, method: str, args: tuple[Any, ...]) -> Generator[None]:
        """As ``Ranks``; a nested call is not sent, since each rank makes it itself."""
        if self.rank == 0 and self._depth == 0:
            self.tell((policy, method, args))
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def tell(self, message: Message) -> None:
        """Rank 0: send ``message`` to the others, which wait for the note that one comes."""
        encoded = encode(message, self.size)
        is_short = len(encoded.document) <= _SHORT_BYTES
        note = _WITH + encoded.document if is_short else str(len(encoded.document)).encode()
        self._notes.write(note)
        document = torch.frombuffer(bytearray(encoded.document), dtype=torch.uint8)
        for rank in range(1, self.size):
            if not is_short:
                send(document, rank)
            for tensor in encoded.tensors_of(rank):
                send(tensor, rank)

    def next_message(self) -> Message:
        """Follower: wait for the next message while rank 0 lives.

        Raises:
            ConnectionError: rank 0 is gone, or what it sent is not a message.
        """
        note = self._notes.read()
        try:
            document = note.removeprefix(_WITH)
            if document == note:
                document = receive((int(note),), torch.uint8).numpy().tobytes()
            return decode(document, self.rank, receive)
        except (dist.DistError, RuntimeError) as error:
            raise ConnectionError(f"rank 0 is gone: {error}") from error

    def gathered(self, values: Tensor, sizes: list[int]) -> list[Tensor]:
        """As ``Ranks``."""
        return gathered_numbers(values, sizes) or []

    def added(self, sums: Mapping[str, float], maxima: Mapping[str, float]) -> dict[str, float]:
        """As ``Ranks``; each rank gives the same names."""
        total = torch.tensor(list(sums.values()), dtype=torch.float64)
        largest = torch.tensor([*maxima.values(), -math.inf], dtype=torch.float64)
        group = _gloo()
        dist.all_reduce(total, group=group)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        values: list[float] = [*total.tolist(), *largest.tolist()[:-1]]
        return dict(zip([*sums, *maxima], values, strict=True))

    def names_of_all(self, names: Iterable[str]) -> list[str]:
        """As ``Ranks``. An own loss may have a metric on some micro-batches only."""
        own = sorted(names)
        document = json.dumps(own).encode()
        digest = float(int.from_bytes(hashlib.sha256(document).digest()[:6]))
        alike = torch.tensor([digest, -digest, float(len(document))], dtype=torch.float64)
        dist.all_reduce(alike, op=dist.ReduceOp.MAX, group=_gloo())
        if alike[0] == -alike[1]:
            return own
        padded = torch.zeros(int(alike[2]), dtype=torch.uint8)
        padded[: len(document)] = torch.frombuffer(bytearray(document), dtype=torch.uint8)
        found = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(found, padded, group=_gloo())
        documents = [bytes(each.tolist()).rstrip(b"\0") for each in found]
        return sorted({name for document in documents for name in json.loads(document)})

    def failure(self) -> str | None:
        """As ``Ranks``."""
        return self._notes.failure(self.size)

    def fail(self, reason: str) -> None:
        """Follower: let rank 0 see why this rank can't go on."""
        self._notes.fail(self.rank, reason)

    def num_blind(self, path: Path) -> int:
        """As ``Ranks``; a follower calls it too, when it was told ``SEES``."""
        if self.rank == 0:
            self.tell(("", SEES, (str(path),)))
        deadline = time.monotonic() + _SEEN_S
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(_SEEN_S / 50)
        return int(self.added({"blind": float(not path.exists())}, {})["blind"])

    def end(self) -> None:
        """Tell the followers to end, and leave the group."""
        self.tell(("", END, ()))
        dist.destroy_process_group()


def join(
    url: str,
    rank: int,
    size: int,
    *,
    device: str,
    shard_ranks: int = 0,
    timeout_s: float = JOIN_S,
) -> Spread:
    """Join the ranks that meet at ``url``: "env://", as torchrun sets it, or "tcp://host:port".

    ``shard_ranks``: so many in a row hold the weights once, and all others copies; 0: all do.
    ``timeout_s`` counts from when rank 0 begins to join.

    Raises:
        InvalidArgumentError: the ranks can't be divided so.
        JobFailedError: not all ranks joined in time.
    """
    if size % (shard_ranks or size):
        raise InvalidArgumentError(
            f"the trainer has {size} ranks, which can't be divided into sets of {shard_ranks}; set "
            "TROUPE_TRAINER_SHARD_RANKS to a divisor, such as the GPUs of one node, or to 0",
            pointer="/trainer/gpus",
        )
    limit = timedelta(seconds=timeout_s)
    try:
        store, _, _ = next(rendezvous(url, rank, size, timeout=limit))
        notes = Notes(PrefixStore("troupe", store), size - 1)
        if rank == 0:
            notes.call()
        else:
            notes.await_call()  # under torchrun rank 0 joins only when it has a job
        if device == "cuda":
            torch.cuda.set_device(rank % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    except (dist.DistError, ValueError, RuntimeError) as error:
        raise JobFailedError(
            f"Rank {rank} of {size} could not join the trainer's ranks within {timeout_s:g} s: "
            f"{error}. Look at the other ranks' logs, and at MASTER_ADDR and MASTER_PORT."
        ) from error
    if rank == 0:
        notes.begin()
    return Spread(notes, rank, size, device, shard_ranks or size)


class Ranked(Protocol):
    """An object with a policy and ranks."""

    policy: str
    ranks: Ranks


def together(method: Callable[..., _T]) -> Callable[..., _T]:
    """A method that all ranks run at once, because collectives are inside.

    Rank 0 calls it with a ``Dealt`` where each rank gets its own shares, and the others wait.
    """

    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> _T:
        owner: Any = args[0]
        if kwargs:
            raise TypeError(f"{method.__name__} runs on all ranks: pass arguments by position")
        with owner.ranks.telling(owner.policy, method.__name__, args[1:]):
            mine: Any = [a.shares[0] if isinstance(a, Dealt) else a for a in args]
            return method(*mine)

    setattr(run, _ON_ALL_RANKS, True)
    return run


def runs_on_all_ranks(method: object) -> bool:
    """Whether ``method`` is one that rank 0 may have the others run."""
    return getattr(method, _ON_ALL_RANKS, False)


def whole(tensor: Tensor) -> Tensor:
    """``tensor`` gathered on all ranks; for small ones."""
    gather: Any = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def _gloo() -> Any:
    """The group that sums numbers on the CPU."""
    return dist.group.WORLD
