"""Loads one policy's learner, and finds the batch that fits on its accelerator.

Owns the order in which a policy's parts are loaded. Keeps nothing; never learns.
"""

from collections.abc import Sequence

import torch

from troupe.algorithms.algorithm import Algorithm
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.fit import fit_batch
from troupe.spec.job import JobSpec
from troupe.spec.memory import GB
from troupe_trainer.learn.demonstrations import demonstrations_of
from troupe_trainer.learn.learner import Learner
from troupe_trainer.learn.teacher import teacher_of
from troupe_trainer.model.kernels import AttentionChoice
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.ranks.group import SOLO, Ranks

_log = get_logger(__name__)


def learner_of(
    policy: str,
    spec: JobSpec,
    algorithm: Algorithm,
    *,
    device: str,
    attention: AttentionChoice,
    shares: Sequence[PolicyModel],
    ranks: Ranks,
    held_bytes: int,
    is_compiled: bool,
) -> Learner:
    """The learner of ``policy`` on rank 0, with its demonstrations and its teacher.

    ``shares``: loaded models whose frozen weights it reuses where they are the same. For the
    others see `Learner`.

    Raises:
        InvalidArgumentError: a part can't be loaded, or does not fit the policy.
        JobFailedError: a model does not fit into memory.
    """
    demonstrations = demonstrations_of(policy, spec, algorithm.sampler())
    teacher = teacher_of(
        policy,
        spec,
        algorithm,
        device=device,
        attention=attention,
        shares=shares if ranks.size == 1 else (),
        is_spread=ranks.size > 1,
    )
    return Learner(
        policy,
        spec,
        algorithm,
        device=device,
        attention=attention,
        shares=shares,
        ranks=ranks,
        held_bytes=held_bytes,
        teacher=teacher,
        demonstrations=demonstrations,
        is_compiled=is_compiled,
    )


def fitted(spec: JobSpec, device: str, ranks: Ranks = SOLO, *, taken_bytes: float = 0.0) -> JobSpec:
    """``spec`` with a batch that fits beside ``taken_bytes`` on the accelerator.

    On the CPU as it is.

    Raises:
        InvalidArgumentError: none fits.
    """
    if torch.device(device).type != "cuda":
        return spec
    memory = torch.cuda.get_device_properties(torch.device(device)).total_memory
    memory -= int(taken_bytes)
    fit = fit_batch(spec, memory, ranks=ranks.num_shards)
    _log.info(
        "memory.predicted",
        peak_gb=None if fit.peak_bytes is None else round(fit.peak_bytes / GB, 1),
        gpu_gb=round(memory / GB, 1),
        batch=fit.batch.model_dump(),
    )
    return spec.model_copy(update={"batch": fit.batch})
