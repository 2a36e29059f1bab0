"""The passes over one rank's share of a minibatch: its micro-batches, one after the other.

Owns the sum over micro-batches and ranks, and its division. Never steps an optimizer.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from torch import nn

from troupe_trainer.learn.outcome import Fixed, Minibatch
from troupe_trainer.learn.passes import Passes
from troupe_trainer.model.ranks.group import Ranks
from troupe_trainer.model.shares import Share


def drift_of(
    share: Share, fixed: Sequence[Fixed] | None, passes: Passes, ranks: Ranks
) -> Minibatch:
    """How far the present weights are from the rollout's probabilities; no gradient."""
    outcome = Minibatch(sums=defaultdict(float))
    for number, (batch, counts) in enumerate(share.microbatches()):
        logprobs = Fixed() if fixed is None else fixed[number]
        outcome.add(passes.drift(batch, logprobs, counts))
    return outcome.over(ranks)


def gradient_of(
    share: Share, fixed: Sequence[Fixed] | None, passes: Passes, ranks: Ranks
) -> Minibatch:
    """Add up the micro-batches' gradients, which are not divided yet; see ``divided``.

    ``fixed``: by micro-batch; None where they are those of the present weights.
    """
    outcome = Minibatch(sums=defaultdict(float))
    for number, (batch, counts) in enumerate(share.microbatches()):
        logprobs = passes.fixed(batch) if fixed is None else fixed[number]
        outcome.add(passes.gradient(batch, logprobs, counts))
    return outcome.over(ranks)


def divided(outcome: Minibatch, share: Share, parameters: Iterable[nn.Parameter]) -> Minibatch:
    """``outcome`` and the gradient, over the minibatch's tokens or completions."""
    if share.denominator:
        outcome.loss /= share.denominator
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(share.denominator)
    return outcome
