"""What a rollout's calls weigh where the number of its calls varies: each token, or each rollout.

A rollout in which an agent made nine calls has nine times the tokens of one with a single call. A
loss over tokens follows that; with equal rollouts each has the weight of the mean one, however many
calls the agent made in it, and the group as a whole weighs what it did.
"""

from collections import Counter
from collections.abc import Sequence

from troupe.algorithms.algorithm import Aggregation, GroupOutcome


def equal_rollouts(
    group: GroupOutcome, advantages: Sequence[float], aggregation: Aggregation
) -> list[float]:
    """Each advantage times n / n_i: n_i is what the loss counts of the agent's calls in their
    rollout, n its mean over the rollouts in which the agent was called.

    It counts tokens, or with aggregation "sequence" completions. All losses are linear in a
    positive factor of the advantage, so the factor is the weight.

    Example: advantages 1, 1, 1 (three calls of one rollout) and -1, of equal lengths, become 2/3,
    2/3, 2/3 and -2.
    """
    by_completion = aggregation == "sequence"
    counts = Counter[int]()
    for call in group.candidates:
        counts[call.trajectory] += 1 if by_completion else call.num_tokens
    mean = counts.total() / len(counts)
    return [
        advantage * mean / counts[call.trajectory]
        for call, advantage in zip(group.candidates, advantages, strict=True)
    ]
