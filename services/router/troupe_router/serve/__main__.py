"""Runs the endpoint of a team: `python -m troupe_router.serve`, configured by TROUPE_SERVE_*."""

import sys

from troupe.runtime.serving import main
from troupe.runtime.serving.forced_exit import EXIT_S
from troupe_router.serve.app import ServeApp
from troupe_router.serve.settings import ServeSettings

if __name__ == "__main__":
    sys.exit(main("serve", ServeSettings, ServeApp, exit_s=EXIT_S))
