"""``python -m troupe.cli`` is the ``troupe`` command."""

from troupe.cli.main import main

main()
