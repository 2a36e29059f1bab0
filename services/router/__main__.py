"""Runs the router: `python -m services.router`, configured by TROUPE_ROUTER_*."""

import sys

from services.router.app import RouterApp
from services.router.settings import RouterSettings
from troupe.serving import main

if __name__ == "__main__":
    sys.exit(main("router", RouterSettings, RouterApp))
