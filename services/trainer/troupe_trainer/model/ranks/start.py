"""Starts a trainer's ranks: under torchrun, or as children of the service.

Owns the processes that it starts. Never computes.
"""

import socket
import subprocess
import sys
from dataclasses import dataclass, field

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from troupe.algorithms.algorithm import Algorithm
from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe_trainer.model.ranks.group import SOLO, Ranks, join

FOLLOWER = "troupe_trainer.learn.follower"
"""What a child runs: a process, so that this room imports none above it."""

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

    def end(self) -> None:
        """Tell all to end; a child that does not is killed."""
        try:
            self.ranks.end()
        finally:
            for child in self.children:
                try:
                    child.wait(END_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def start(num_ranks: int, *, device: str, threads: int) -> Started:
    """Rank 0 with all others: those of torchrun, or ``num_ranks`` - 1 children; blocks.

    Raises:
        JobFailedError: the ranks did not all join.
    """
    torchrun = TorchrunSettings()
    if torchrun.world_size > 1:
        return Started(join("env://", 0, torchrun.world_size, device=device))
    if num_ranks == 1:
        return Started()
    url = f"tcp://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", FOLLOWER, url]
    more = [str(num_ranks), device, str(threads)]
    children = [subprocess.Popen([*command, str(rank), *more]) for rank in range(1, num_ranks)]
    try:
        return Started(join(url, 0, num_ranks, device=device), children)
    except BaseException:
        for child in children:
            child.kill()
            child.wait()
        raise


def refuse_what_cannot_spread(spec: JobSpec, algorithm: Algorithm, ranks: Ranks) -> None:
    """Raises InvalidArgumentError for a spec that needs one process."""
    if ranks.size == 1:
        return
    if algorithm.needs.values is not None:
        raise InvalidArgumentError(
            f"'{spec.algorithm.kind}' has a critic, and critics are not spread over ranks; train "
            "with one rank (TROUPE_TRAINER_RANKS=1)",
            pointer="/algorithm/kind",
        )
    if spec.batch.overlap:
        raise InvalidArgumentError(
            "gradients are summed while the round is played on one rank only; train with one rank "
            "(TROUPE_TRAINER_RANKS=1), or leave out batch.overlap",
            pointer="/batch/overlap",
        )
    for name, policy in spec.policies.items():
        if policy.train.vision:
            raise InvalidArgumentError(
                f"the vision tower of policy '{name}' is trained, and only ranks with images have "
                "its gradient; train with one rank (TROUPE_TRAINER_RANKS=1), or leave out vision",
                pointer=f"/policies/{name}/train/vision",
            )
        if policy.past is not None and policy.past.every:
            raise InvalidArgumentError(
                f"policy '{name}' takes over weights, which ranks can't; train with one rank "
                "(TROUPE_TRAINER_RANKS=1), or set every: 0",
                pointer=f"/policies/{name}/past/every",
            )


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
