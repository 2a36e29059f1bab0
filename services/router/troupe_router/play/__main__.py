"""Runs a player process: `python -m troupe_router.play`, configured by TROUPE_PLAY_*."""

import sys

from troupe.runtime.serving import main
from troupe_router.play.app import PlayApp
from troupe_router.play.settings import PlaySettings

if __name__ == "__main__":
    sys.exit(main("play", PlaySettings, PlayApp))
