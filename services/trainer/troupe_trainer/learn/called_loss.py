"""The call of an algorithm's loss, whose code may be a user's: what it raises ends the job.

Owns the sentence that names the line. A machine that is short of memory, a GPU's own failure and
lost ranks are left as they are, so that the work is retried.
"""

import torch

from troupe.algorithms.algorithm import (
    Algorithm,
    LossInputs,
    LossOutput,
    hook_gave,
    hook_raised,
)
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.runtime.transient import is_transient

_OF_THE_MACHINE = (torch.OutOfMemoryError, torch.AcceleratorError, torch.distributed.DistError)
_CUDA = "CUDA"  # cuBLAS and its like raise a plain RuntimeError with it


class LossFailedError(InvalidArgumentError):
    """The algorithm's loss raised, or gave what is no loss."""


def loss_of(algorithm: Algorithm, inputs: LossInputs) -> LossOutput:
    """The algorithm's loss of one micro-batch, a scalar with a gradient; metrics as floats.

    Raises:
        LossFailedError: its code raises, or gives something else.
    """
    try:
        output = algorithm.loss(inputs)
        sums = {name: float(value) for name, value in output.metric_sums.items()}
        shape, is_learnt = tuple(output.loss_sum.shape), output.loss_sum.requires_grad
    except (Exception, SystemExit) as error:  # the latter would end the process
        if isinstance(error, TroupeError) or is_of_the_machine(error):
            raise
        raise LossFailedError(hook_raised(algorithm, "loss", error)) from error
    if shape or not is_learnt:
        problem = f"has the shape {shape}" if shape else "has no gradient (is it detached?)"
        what = f"a loss_sum that {problem}; give the sum over tokens, a scalar that is made of "
        raise LossFailedError(hook_gave(algorithm, "loss", f"{what}trainer_logprobs_N"))
    return LossOutput(output.loss_sum, sums)


def is_of_the_machine(error: BaseException) -> bool:
    """Whether a restart may help: CUDA, memory, or what passes by itself."""
    is_cuda = isinstance(error, RuntimeError) and _CUDA in str(error)
    return is_cuda or isinstance(error, _OF_THE_MACHINE) or is_transient(error)
