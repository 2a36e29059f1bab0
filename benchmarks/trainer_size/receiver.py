"""A rank that receives shares and answers with their sums; a process of ``exchange``.

``python -m benchmarks.trainer_size.receiver URL RANK SIZE``: ends when rank 0 says so.
"""

import sys

import torch

from troupe_trainer.model.peak_memory import peak_bytes
from troupe_trainer.model.ranks.group import END, join
from troupe_trainer.model.shares import Share


def sums(shares: list[Share]) -> torch.Tensor:
    """Tokens, the sum of their ids, of their log probabilities and of positions; peak bytes."""
    totals = torch.zeros(5, dtype=torch.float64)
    for share in shares:
        for batch, counts in share.microbatches():
            if counts:
                totals[0] += len(batch.targets_N)
                totals[1] += float(batch.targets_N.sum())
                totals[2] += float(batch.rollout_logprobs_N.sum(dtype="float64"))
                totals[3] += float(batch.positions_M.sum())
    totals[4] = float(peak_bytes(torch.device("cpu")) or 0)
    return totals


def main() -> None:
    url, rank, size = sys.argv[1:]
    ranks = join(url, int(rank), int(size), device="cpu")
    while True:
        _, method, arguments = ranks.next_message()
        if method == END:
            return
        ranks.gathered(sums(arguments[0]), [5] * ranks.size)


if __name__ == "__main__":
    main()
