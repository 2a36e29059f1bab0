"""A rank above 0: holds its shard of every policy and runs the methods that rank 0 sends.

``python -m troupe_trainer.learn.follower URL RANK SIZE DEVICE THREADS SHARD_RANKS`` is a child of
rank 0.
Decides nothing. Never serves, never talks to Redis, writes no file but its part of a checkpoint.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from troupe.algorithms.load import load_algorithm
from troupe.runtime.telemetry.logging import get_logger
from troupe.seeds import derive_seed
from troupe.spec.job import JobSpec
from troupe_trainer.learn.called_loss import LossFailedError
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.outcome import NonFiniteError
from troupe_trainer.learn.teacher import teacher_of
from troupe_trainer.model.ranks.group import END, LOAD, SEES, Spread, join, runs_on_all_ranks

_log = get_logger(__name__)


def follow(ranks: Spread, *, device: str, threads: int) -> None:
    """Compute with rank 0 until it ends the job; the caller ends the process.

    Raises:
        ConnectionError: rank 0 is gone.
    """
    torch.set_num_threads(threads)
    disable_progress_bar()
    learners: dict[str, Learner] = {}
    while True:
        policy, method, arguments = ranks.next_message()
        if method == END:
            return
        if method == LOAD:
            spec = JobSpec.model_validate_json(arguments[0])
            learners = _load(ranks, spec, device, arguments[1], policy)
            continue
        if method == SEES:
            ranks.num_blind(Path(arguments[0]))
            continue
        learner = learners[policy]
        owner: Any = learner if hasattr(Learner, method) else learner.model
        work: Any = getattr(owner, method, None)
        if not runs_on_all_ranks(work):
            raise ConnectionError(f"rank 0 asked for {method!r}, which ranks do not run")
        try:
            work(*arguments)
        except NonFiniteError as error:  # rank 0 raises the same, and ends the job
            _log.warning("ranks.step_failed", rank=ranks.rank, error=error.message)
        except LossFailedError as error:  # of this rank's groups, so rank 0 waits in a collective
            ranks.fail(error.message)
            _log.warning("ranks.step_failed", rank=ranks.rank, error=error.message)


def _load(
    ranks: Spread, spec: JobSpec, device: str, attention: Any, only: str
) -> dict[str, Learner]:
    """The learner of the policy ``only``; "" loads every policy's."""
    algorithm = load_algorithm(spec.algorithm)
    learners = {
        policy: Learner(
            policy,
            spec,
            algorithm,
            device=device,
            attention=attention,
            ranks=ranks,
            teacher=teacher_of(
                policy,
                spec,
                algorithm,
                device=device,
                attention=attention,
                is_spread=True,
            ),
        )
        for policy in ([only] if only else sorted(spec.policies))
    }
    torch.manual_seed(derive_seed(spec.seed, "learner"))
    return learners


def outlive_signals() -> None:
    """Leave a signal to the whole group of processes to rank 0: it needs all ranks to save."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def main() -> int:
    """Follow rank 0 until it ends the job; returns 1 when rank 0 is gone."""
    url, rank, size, device, threads, shard_ranks = sys.argv[1:]
    outlive_signals()
    ranks = join(url, int(rank), int(size), device=device, shard_ranks=int(shard_ranks))
    try:
        follow(ranks, device=device, threads=int(threads))
    except ConnectionError as error:
        print(f"rank {rank}: {error}", file=sys.stderr)
        return 1
    sys.stderr.flush()
    os._exit(0)  # a child has nothing to clean up, and torch's own exit takes seconds


if __name__ == "__main__":
    sys.exit(main())
