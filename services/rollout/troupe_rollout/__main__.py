"""``python -m troupe_rollout``. Status 3 means that the configuration or the model is wrong."""

import sys

from troupe.runtime.serving import main
from troupe_rollout.app import RolloutApp
from troupe_rollout.settings import RolloutSettings

if __name__ == "__main__":
    sys.exit(main("rollout", RolloutSettings, RolloutApp))
