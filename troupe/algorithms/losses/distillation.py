"""On-policy distillation: each sampled token is worth what the teacher thinks of it.

The advantage of token t is A_t = log pi_teacher(y_t) - log pi(y_t), both after the same prefix and
at the temperature that was sampled with. -A_t is the k1 estimate of KL(pi || pi_teacher) at this
token, and on the policy's own samples the expected gradient of -A_t * log pi(y_t) is the gradient
of that divergence. What a token does to later ones does not count (a discount of 0).

Source: GKD (arXiv 2306.13649), with reverse KL and the student's samples alone;
"On-Policy Distillation" (Thinking Machines Lab, 2025).

Shape suffix: N trained tokens.
"""

from dataclasses import replace

from troupe.algorithms.algorithm import LossInputs, LossOutput
from troupe.algorithms.losses.policy import policy_loss
from troupe.spec.algorithm import LossSpec


def distillation_loss(inputs: LossInputs, spec: LossSpec, reward_coef: float = 0.0) -> LossOutput:
    """``policy_loss`` under A_t + reward_coef * (the candidate's own advantage).

    log pi is that of the weights before the step's first update: the trainer's where they are
    computed (importance weights), else the rollout's. ``kl_teacher`` is the sum of -A_t.

    Raises ValueError without ``teacher_logprobs_N``.

    Example: a token of probability 1/4 under the policy and 1/2 under the teacher has A = log 2.
    """
    if inputs.teacher_logprobs_N is None:
        raise ValueError("distillation needs teacher_logprobs_N: the algorithm's needs.teacher")
    old_N = inputs.old_logprobs_N
    student_N = inputs.rollout_logprobs_N if old_N is None else old_N
    gain_N = (inputs.teacher_logprobs_N - student_N).detach()
    advantages_N = gain_N + reward_coef * inputs.advantages_N
    output = policy_loss(replace(inputs, advantages_N=advantages_N), spec)
    return replace(
        output, metric_sums=output.metric_sums | {"kl_teacher": -float(gain_N.double().sum())}
    )
