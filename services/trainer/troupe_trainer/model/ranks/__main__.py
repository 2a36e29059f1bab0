"""``python -m troupe_trainer.model.ranks URL RANK SIZE DEVICE THREADS``: a child of rank 0."""

import os
import sys

from troupe_trainer.model.ranks.follower import follow
from troupe_trainer.model.ranks.group import join


def main() -> int:
    """Follow until told to end; 1 when rank 0 is gone."""
    url, rank, size, device, threads = sys.argv[1:]
    ranks = join(url, int(rank), int(size), device=device)
    try:
        follow(ranks, device=device, threads=int(threads))
    except ConnectionError as error:
        print(f"rank {rank}: {error}", file=sys.stderr)
        return 1
    sys.stderr.flush()
    os._exit(0)  # a child has nothing to put away, and torch takes seconds to


if __name__ == "__main__":
    sys.exit(main())
