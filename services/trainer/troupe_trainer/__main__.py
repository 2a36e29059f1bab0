"""``python -m troupe_trainer``: settings, logging, run."""

import sys

from troupe.errors import TroupeError
from troupe.runtime.serving.life import main
from troupe.runtime.serving.memory import keep_freed_memory
from troupe.runtime.telemetry.logging import configure_logging
from troupe_trainer.app import TrainerService
from troupe_trainer.learn.follower import follow, outlive_signals
from troupe_trainer.learn.learners import resolve_device
from troupe_trainer.model.ranks.group import join
from troupe_trainer.model.ranks.start import TorchrunSettings
from troupe_trainer.settings import TrainerSettings


def run() -> int:
    """Run until the job is over; returns 3 when it failed for good.

    Under torchrun every rank but the first only takes part in the computation.
    """
    torchrun = TorchrunSettings()
    if torchrun.rank:
        return follow_torchrun(torchrun)
    built: list[TrainerService] = []

    def build(settings: TrainerSettings) -> TrainerService:
        if resolve_device(settings.device) == "cpu":
            keep_freed_memory()
        built.append(TrainerService(settings))
        return built[0]

    status = main("trainer", TrainerSettings, build)
    return status or (built[0].exit_code if built else 0)


def follow_torchrun(torchrun: TorchrunSettings) -> int:
    """Run a rank above 0 until rank 0 ends the job.

    Returns 1 when rank 0 is gone, or the ranks could not join.
    """
    outlive_signals()
    settings = TrainerSettings()
    configure_logging("trainer", level=settings.log_level, rank=str(torchrun.rank))
    device = resolve_device(settings.device)
    try:
        ranks = join(
            "env://",
            torchrun.rank,
            torchrun.world_size,
            device=device,
            shard_ranks=settings.shard_ranks,
        )
        follow(ranks, device=device, threads=settings.torch_threads)
    except (ConnectionError, TroupeError) as error:
        print(f"rank {torchrun.rank}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
