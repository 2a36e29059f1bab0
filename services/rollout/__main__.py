"""``python -m services.rollout``. Status 3 means that the configuration or the model is wrong."""

import sys

from services.rollout.app import RolloutApp
from services.rollout.settings import RolloutSettings
from troupe.serving import main

EXIT_FAILED = 1
EXIT_MISCONFIGURED = 3
"""Starting again will not help."""


def run() -> int:
    """Serve; the exit status."""
    built: list[RolloutApp] = []

    def build(settings: RolloutSettings) -> RolloutApp:
        built.append(RolloutApp(settings))
        return built[0]

    status = main("rollout", RolloutSettings, build)
    if status == EXIT_FAILED and (not built or built[0].is_misconfigured):
        return EXIT_MISCONFIGURED
    return status


if __name__ == "__main__":
    sys.exit(run())
