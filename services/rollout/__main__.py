"""``python -m services.rollout``. Status 3 means that the configuration or the model is wrong."""

import sys

from services.rollout.app import RolloutApp
from services.rollout.settings import RolloutSettings
from troupe.serving import main

if __name__ == "__main__":
    sys.exit(main("rollout", RolloutSettings, RolloutApp))
