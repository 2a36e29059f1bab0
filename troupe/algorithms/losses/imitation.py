"""Supervised learning beside the groups: the mean cross-entropy of demonstrated tokens.

The loss of an optimizer step is L_groups + weight * L_shown, where L_shown is the mean over the
demonstrations' answer tokens of -log pi(y_t) at temperature 1, after the prompt and the answer's
tokens before t. It counts once a step, however many groups the step has.

Source: the usual mixture of a policy-gradient and a supervised loss, as in DQfD (arXiv 1704.03732)
and, for language models, the pretraining term of InstructGPT (arXiv 2203.02155, Equation 2).

Shape suffix: N demonstrated tokens.
"""

from torch import Tensor


def imitation_loss(logprobs_N: Tensor, weight: float, num_tokens: int) -> Tensor:
    """A micro-batch's part of ``weight`` * the mean over ``num_tokens`` tokens of all of them.

    Example: probabilities 1/2 and 1/8, weight 0.5: 0.5 * (log 2 + log 8) / 2 = log 2.
    """
    return -(weight / num_tokens) * logprobs_N.sum()
