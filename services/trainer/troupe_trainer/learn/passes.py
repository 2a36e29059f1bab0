"""Forward and backward passes of one policy: what one micro-batch adds to a minibatch's sums.

Owns the call of the algorithm's loss. Never steps an optimizer and never scales a gradient.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from troupe.algorithms.adaptive import Coefficients
from troupe.algorithms.algorithm import Algorithm, LossInputs
from troupe.algorithms.losses.imitation import imitation_loss
from troupe.algorithms.losses.kl import kl_estimate
from troupe.runtime.step_report.catalogue import loss_metric_name
from troupe_trainer.learn.called_loss import loss_of
from troupe_trainer.learn.device_memory import DeviceMemory
from troupe_trainer.learn.outcome import FLOPS, Fixed, Imitated, Minibatch, correction
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import Microbatch
from troupe_trainer.model.shares import Share

_T = TypeVar("_T")


class Passes:
    """The passes of ``model`` under ``algorithm``."""

    def __init__(
        self,
        model: PolicyModel,
        algorithm: Algorithm,
        coefficients: Coefficients,
        memory: DeviceMemory,
    ) -> None:
        self._model = model
        self.memory = memory
        self._algorithm = algorithm
        self.coefficients = coefficients
        """Of the present step."""

    def fixed(self, batch: Microbatch) -> Fixed:
        """Log probabilities that are needed from before the step's first update."""
        return self._repeated(batch, self._fixed)

    def _repeated(self, batch: Microbatch, work: Callable[[Microbatch], _T]) -> _T:
        """``work`` without a gradient: nothing has to be undone before it is repeated."""
        self._note(batch)
        return self.memory.repeat(lambda: work(batch))

    def _note(self, batch: Microbatch) -> None:
        self.memory.doing = f"a pass over {len(batch.tokens_M)} tokens"

    def _fixed(self, batch: Microbatch) -> Fixed:
        needs = self._algorithm.needs
        return Fixed(
            old_N=self.old_logprobs(batch) if needs.old else None,
            reference_N=self._model.reference_logprobs(batch) if needs.reference else None,
            teacher_N=self._taught(batch) if needs.teacher else None,
        )

    def _taught(self, batch: Microbatch) -> Tensor:
        """The teacher's log probabilities: those that came with the samples, else this one's."""
        if batch.teacher_logprobs_N is not None:
            return torch.from_numpy(batch.teacher_logprobs_N).to(self._model.device)
        return self._model.teacher_logprobs(batch)

    @torch.no_grad()
    def old_logprobs(self, batch: Microbatch) -> Tensor:
        """Log probability of each trained token under the present weights."""
        return self._model.logprobs(batch, want_entropy_grad=False)[0]

    @torch.no_grad()
    def against_reference(self, batch: Microbatch, kl: Literal["k1", "k2", "k3"] | None) -> Tensor:
        """KL(rollout || reference) of each trained token by the estimator ``kl``; with None, the
        log ratio of the present weights to the reference. On the CPU.
        """
        reference_N = self._repeated(batch, self._model.reference_logprobs)
        if kl is None:
            return (self._repeated(batch, self.old_logprobs) - reference_N).cpu()
        return kl_estimate(torch.from_numpy(batch.rollout_logprobs_N), reference_N.cpu(), kl)

    def drift(self, batch: Microbatch, fixed: Fixed, counts: bool) -> Minibatch:
        """How far the present weights are from the rollout's probabilities; no gradient."""
        # A rank whose micro-batches do not count has the same names: their sums are added up.
        outcome = Minibatch(sums=defaultdict(float, kl_rollout=0.0))
        trainer_N = fixed.old_N
        if trainer_N is None:
            trainer_N = self._repeated(batch, self.old_logprobs)
        if counts:
            outcome.add_drift(trainer_N, torch.from_numpy(batch.rollout_logprobs_N))
        return outcome

    def gradient(self, batch: Microbatch, fixed: Fixed, counts: bool) -> Minibatch:
        """Add the gradient of the summed loss to the parameters'; ``counts`` False adds zeros.

        The sum is divided when all of a minibatch is there: its tokens are not known before.
        """
        self._note(batch)
        device, ranks = self._model.device, self._model.ranks
        with_entropy = self._algorithm.needs.entropy
        trainer_logprobs, entropy = self._model.logprobs(batch, want_entropy_grad=with_entropy)
        rollout_logprobs = torch.from_numpy(batch.rollout_logprobs_N).to(device)
        result = loss_of(
            self._algorithm,
            LossInputs(
                trainer_logprobs_N=trainer_logprobs,
                rollout_logprobs_N=rollout_logprobs,
                advantages_N=torch.from_numpy(batch.advantages_N).to(device),
                sequence_N=torch.from_numpy(batch.sequence_N).to(device),
                weights_N=torch.from_numpy(self._weights(batch)).to(device),
                entropy_N=entropy if with_entropy else None,
                old_logprobs_N=fixed.old_N,
                ref_logprobs_N=fixed.reference_N,
                teacher_logprobs_N=fixed.teacher_N,
                kl_coef=self.coefficients.kl,
                entropy_coef=self.coefficients.bonus,
            ),
        )
        loss = result.loss_sum if counts else result.loss_sum * 0.0
        spread_loss: Any = loss * ranks.size  # FSDP2 takes the mean over ranks
        spread_loss.backward()
        with torch.no_grad():
            log_ratio = trainer_logprobs - rollout_logprobs
            drift = torch.expm1(log_ratio).abs().max()
            values = [loss.detach(), entropy.sum(), log_ratio.max(), drift]
            numbers = torch.stack(values).tolist()
        scale = 1.0 if counts else 0.0
        outcome = Minibatch(sums=defaultdict(float))
        outcome.loss = numbers[0]
        outcome.sums["entropy"] = scale * numbers[1]
        outcome.ratio_max = math.exp(min(numbers[2], 80.0))
        outcome.drift_max = numbers[3]
        by_loss = {loss_metric_name(name): value for name, value in result.metric_sums.items()}
        for name, value in (correction(fixed.old_N, rollout_logprobs) | by_loss).items():
            outcome.sums[name] += scale * value
        outcome.num_tokens = len(batch.targets_N) if counts else 0
        outcome.sums[FLOPS] = scale * self._model.flops.of(batch)
        return outcome

    def imitate(self, share: Share, weight: float) -> Imitated:
        """Add the gradient of ``weight`` * the mean cross-entropy of the share's tokens.

        ``share.denominator``: the tokens of all ranks.
        """
        ranks = self._model.ranks
        sums = {"loss": 0.0, "flops": 0.0}
        for batch, counts in share.microbatches():
            self._note(batch)
            logprobs_N, _ = self._model.logprobs(batch, want_entropy_grad=False)
            scale = 1.0 if counts else 0.0
            loss = imitation_loss(logprobs_N, weight, share.denominator) * scale
            spread_loss: Any = loss * ranks.size  # as in ``gradient``
            spread_loss.backward()
            sums["loss"] -= scale * float(logprobs_N.detach().sum())
            sums["flops"] += scale * self._model.flops.of(batch)
        total = ranks.added(sums, {})
        return Imitated(total["loss"], share.denominator, weight, total["flops"])

    def _weights(self, batch: Microbatch) -> NDArray[np.float32]:
        """1 a token, or 1 / length where completions are averaged over their token means."""
        if self._algorithm.aggregation != "sequence":
            return np.ones(len(batch.targets_N), dtype=np.float32)
        lengths = np.bincount(batch.sequence_N)[batch.sequence_N]
        return (1.0 / lengths).astype(np.float32)
