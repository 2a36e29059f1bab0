"""Runs the router: `python -m troupe_router`, configured by TROUPE_ROUTER_*."""

import sys

from troupe.runtime.serving import main
from troupe_router.app import RouterApp
from troupe_router.settings import RouterSettings

if __name__ == "__main__":
    sys.exit(main("router", RouterSettings, RouterApp))
