"""Runs the endpoint of a team: `python -m troupe_router.serve`, configured by TROUPE_SERVE_*."""

import signal
import sys

if __name__ == "__main__":
    # Imports take seconds, and Ctrl-C in them would print a traceback; ``main`` catches signals.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

    from troupe.runtime.serving import main
    from troupe.runtime.serving.forced_exit import EXIT_S
    from troupe_router.serve.app import ServeApp
    from troupe_router.serve.settings import ServeSettings

    sys.exit(main("serve", ServeSettings, ServeApp, exit_s=EXIT_S))
