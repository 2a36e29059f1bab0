"""Starts a trainer's ranks: under torchrun, or as children of the service.

Owns the processes that it starts. Never computes.
"""

import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field

import torch
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.errors import InvalidArgumentError
from troupe_trainer.model.ranks.group import SOLO, Ranks, join

FOLLOWER = "troupe_trainer.learn.follower"
"""What a child runs: a process, so that this room imports none above it."""

WATCH_S = 0.5
"""Time between two looks at whether the children live."""
END_S = 30.0
"""Time for the children to end after they were told."""


class TorchrunSettings(BaseSettings):
    """Variables that torchrun sets in each process; the defaults mean a single process."""

    model_config = SettingsConfigDict(env_prefix="", extra="ignore")

    rank: int = Field(default=0, ge=0)
    world_size: int = Field(default=1, ge=1)


@dataclass(slots=True)
class Started:
    """The ranks as rank 0 sees them, and the children that it must wait for."""

    ranks: Ranks = SOLO
    children: list["subprocess.Popen[bytes]"] = field(
        default_factory=list["subprocess.Popen[bytes]"]
    )
    ending: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """Tell all to end; a child that does not is killed."""
        self.ending.set()
        try:
            self.ranks.end()
        finally:
            for child in self.children:
                try:
                    child.wait(END_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def start(
    num_ranks: int,
    *,
    device: str,
    threads: int,
    asked: int | None = None,
    shard_ranks: int = 0,
) -> Started:
    """Rank 0 with all others: those of torchrun, or ``num_ranks`` - 1 children; blocks.

    ``asked`` is the job's own number (`trainer.gpus`), which goes before ``num_ranks``. For
    ``shard_ranks`` see ``join``.

    Raises:
        InvalidArgumentError: this machine has fewer GPUs, or torchrun started another number.
        JobFailedError: the ranks did not all join.
    """
    torchrun = TorchrunSettings()
    num_ranks = asked or num_ranks
    _check_size(num_ranks, asked, torchrun.world_size, device)
    if torchrun.world_size > 1:
        size = torchrun.world_size
        return Started(join("env://", 0, size, device=device, shard_ranks=shard_ranks))
    if num_ranks == 1:
        return Started()
    url = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", FOLLOWER, url]
    more = [str(num_ranks), device, str(threads), str(shard_ranks)]
    children = [subprocess.Popen([*command, str(rank), *more]) for rank in range(1, num_ranks)]
    started = Started(children=children)
    threading.Thread(target=_watch, args=(started,), name="ranks", daemon=True).start()
    try:
        started.ranks = join(url, 0, num_ranks, device=device, shard_ranks=shard_ranks)
        return started
    except BaseException:
        started.ending.set()
        for child in children:
            child.kill()
            child.wait()
        raise


def _watch(started: Started) -> None:
    """End this process when a child ends too early.

    The others may stand in a collective that would notice only by its time-out, and no thread can
    be taken out of one. The trainer that follows goes on from the last checkpoint.
    """
    while not started.ending.wait(WATCH_S):
        for rank, child in enumerate(started.children, 1):
            if child.poll() is not None and not started.ending.is_set():
                print(
                    f"troupe trainer: rank {rank} ended with status {child.returncode}, so all "
                    "begin again from the last checkpoint.",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)


def _check_size(num_ranks: int, asked: int | None, world_size: int, device: str) -> None:
    """Two ranks never share a GPU, and torchrun's number is the job's."""
    if world_size > 1:
        if asked not in (None, world_size):
            raise InvalidArgumentError(
                f"torchrun started {world_size} ranks of the trainer and the job has trainer.gpus: "
                f"{asked}; give it trainer.gpus: {world_size}, or leave it out",
                pointer="/trainer/gpus",
            )
    elif device == "cuda" and num_ranks > torch.cuda.device_count():
        raise InvalidArgumentError(
            f"the trainer is to have {num_ranks} ranks and sees {torch.cuda.device_count()} GPUs; "
            "lower trainer.gpus (or TROUPE_TRAINER_RANKS), or show it more (CUDA_VISIBLE_DEVICES)",
            pointer="/trainer/gpus",
        )


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
