"""``python -m services.trainer``: settings, logging, run."""

import sys

from services.trainer.app import TrainerService
from services.trainer.settings import TrainerSettings
from troupe.serving.life import main


def run() -> int:
    """Live until the job is over; 3 when it failed for good."""
    built: list[TrainerService] = []

    def build(settings: TrainerSettings) -> TrainerService:
        built.append(TrainerService(settings))
        return built[0]

    status = main("trainer", TrainerSettings, build)
    return status or (built[0].exit_code if built else 0)


if __name__ == "__main__":
    sys.exit(run())
