"""``python -m troupe_env``."""

import sys

from troupe.runtime.serving import main
from troupe.runtime.serving.forced_exit import EXIT_S
from troupe_env.app import EnvApp
from troupe_env.settings import EnvSettings

if __name__ == "__main__":
    sys.exit(main("env", EnvSettings, EnvApp, exit_s=EXIT_S))
