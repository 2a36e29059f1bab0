"""``python -m troupe_env``."""

import sys

from troupe.runtime.serving import main
from troupe_env.app import EnvApp
from troupe_env.settings import EnvSettings

if __name__ == "__main__":
    sys.exit(main("env", EnvSettings, EnvApp))
