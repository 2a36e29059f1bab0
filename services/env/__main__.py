"""``python -m services.env``."""

import sys

from services.env.app import EnvApp
from services.env.settings import EnvSettings
from troupe.serving import main

if __name__ == "__main__":
    sys.exit(main("env", EnvSettings, EnvApp))
