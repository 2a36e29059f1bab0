"""One policy's learning: credited groups in, an optimizer step out.

Owns model, optimizer and step count. Never sees Redis, replicas or files, and does not know
which algorithm it runs.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from troupe.algorithms.algorithm import Algorithm, LossInputs
from troupe.algorithms.losses.kl import kl_estimate
from troupe.runtime.faults import reached
from troupe.runtime.step_report.catalogue import loss_metric_name
from troupe.seeds import derive_seed
from troupe.spec.job import JobSpec
from troupe_trainer.learn import trained_state
from troupe_trainer.learn.minibatches import minibatches
from troupe_trainer.learn.outcome import (
    FLOPS,
    Fixed,
    LearnOutcome,
    Minibatch,
    NonFiniteError,
    correction,
    parity,
)
from troupe_trainer.learn.schedule import learning_rate
from troupe_trainer.model.flops import peak_flops
from troupe_trainer.model.kernels import AttentionChoice, choose
from troupe_trainer.model.learner_state import LearnerState, check_fits
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import Block, Microbatch, lay_out
from troupe_trainer.model.peak_memory import peak_bytes, reset_peak
from troupe_trainer.model.ranks.group import SOLO, Ranks, together, whole
from troupe_trainer.model.shares import Dealt, Share, deal
from troupe_trainer.samples import CreditedGroup

_NAMED_GROUPS = 8
"""An error names so many groups; the file has all."""


class Learner:
    """Trains the weights of one policy."""

    def __init__(
        self,
        policy: str,
        spec: JobSpec,
        algorithm: Algorithm,
        *,
        device: str,
        attention: AttentionChoice = "auto",
        shares: Sequence[PolicyModel] = (),
        ranks: Ranks = SOLO,
    ) -> None:
        self.policy = policy
        self.ranks = ranks
        self._make = (spec, algorithm)
        policy_spec = spec.policies[policy]
        self.model = PolicyModel(
            policy,
            policy_spec,
            seed=spec.seed,
            device=device,
            kernels=choose(policy_spec, device, attention),
            checkpoint_activations=bool(spec.batch.checkpoint_activations),
            shares=shares if ranks.size == 1 else (),
        )
        self._batch = spec.batch
        self._algorithm = algorithm
        self._kl = spec.algorithm.loss.kl
        self._keeps_flat_groups = algorithm.needs.entropy or (
            algorithm.needs.reference and self._kl.where == "loss"
        )
        if algorithm.needs.reference or algorithm.needs.log_ratios:
            self.model.keep_reference()
        self.model.spread(ranks)
        self._config = spec.policies[policy].optimizer
        self._num_minibatches = spec.algorithm.minibatches
        turns = sum(spec.learns(policy, step) for step in range(spec.steps))
        self._num_optimizer_steps = turns * spec.algorithm.minibatches
        self._optimizer_step = 0
        self._parameters = self.model.trainable()
        self._optimizer = torch.optim.AdamW(
            list(self._parameters.values()),
            lr=self._config.learning_rate,
            betas=(self._config.beta1, self._config.beta2),
            weight_decay=self._config.weight_decay,
            fused=True,
        )

    def alone(self) -> "Learner":
        """This learner on one process: a copy if it is spread over ranks, else itself."""
        if self.ranks.size == 1:
            return self
        learner = Learner(self.policy, *self._make, device="cpu")
        learner.restore(self.state())
        return learner

    def step(self, groups: Sequence[CreditedGroup], version: int | None = None) -> LearnOutcome:
        """Take one training step: each group is seen once, in one of the minibatches.

        ``version`` is that of the present weights: parity is not measured on groups of older ones.

        Raises:
            NonFiniteError: before any weight of the minibatch changes.
        """
        seed = derive_seed(self._make[0].seed, "minibatches", self.policy, self._optimizer_step)
        parts = minibatches(groups, self._num_minibatches, seed)
        is_current = version is None or all(g.record.policy_version == version for g in groups)
        try:
            outcome = self._step(self._deal(parts), is_current)
        except NonFiniteError as error:
            at_fault = self._offenders(parts[error.minibatch])
            raise NonFiniteError(
                f"{error.message} {self._blame(at_fault)} Look at them, then lower the learning "
                "rate or use float32.",
                at_fault,
            ) from error
        return replace(outcome, trained_groups=sum(self._is_used(group) for group in groups))

    @together
    def _step(self, shares: Sequence[Share], is_current: bool) -> LearnOutcome:
        """A step over this rank's shares of the minibatches; the outcome is of all ranks."""
        reset_peak(self.model.device)
        totals: dict[str, float] = defaultdict(float)
        maximum, trained = 0.0, 0
        fixed = [self._fixed_logprobs(share) for share in shares]
        later = zip(shares[1:], fixed[1:], strict=True) if is_current else ()
        unmoved = [self._drift(share, share_fixed) for share, share_fixed in later]
        for number, (share, share_fixed) in enumerate(zip(shares, fixed, strict=True)):
            outcome = self._minibatch(share, share_fixed, number)
            if number == 0:
                unmoved.append(outcome)
            for name, value in outcome.sums.items():
                totals[name] += value
            maximum = max(maximum, outcome.ratio_max)
            trained += outcome.num_tokens
            totals["_loss"] += outcome.loss / self._num_minibatches
            totals["_grad_norm"] += outcome.grad_norm / self._num_minibatches
        loss, grad_norm = totals.pop("_loss", 0.0), totals.pop("_grad_norm", 0.0)
        speed = peak_flops(self.model.device)
        ideal_s = None if speed is None else totals.get(FLOPS, 0.0) / (speed * self.ranks.size)
        totals.pop(FLOPS, None)
        metrics = {name: value / max(1, trained) for name, value in totals.items()}
        metrics |= {"loss": loss, "grad_norm": grad_norm, "ratio_max": maximum}
        if is_current:
            metrics |= parity(unmoved)
        metrics["learning_rate"] = self._rate(self._optimizer_step - 1)
        low, high = metrics.get("clip_fraction_low"), metrics.get("clip_fraction_high")
        if low is not None and high is not None:
            metrics["clip_fraction"] = low + high
        return LearnOutcome(metrics, trained, peak_bytes(self.model.device), ideal_s=ideal_s)

    def reference_kl(self, groups: Sequence[CreditedGroup]) -> list[list[float]]:
        """KL(rollout || reference) of each candidate, summed over its tokens, in index order."""
        return self._candidate_sums(groups, "kl")

    def log_ratios(self, groups: Sequence[CreditedGroup]) -> list[list[float]]:
        """log pi / pi_ref of each candidate under the present weights, in index order."""
        return self._candidate_sums(groups, "log_ratio")

    def _candidate_sums(self, groups: Sequence[CreditedGroup], of: str) -> list[list[float]]:
        """Sums over each candidate's tokens; 0 for one that is not among a group's samples."""
        sums = [[0.0] * len(group.record.candidates) for group in groups]
        place = {
            id(sample): (row, sample.index)
            for row, group in zip(sums, groups, strict=True)
            for prompt in group.prompts
            for sample in prompt.samples
        }
        dealt = self._deal([groups], with_all=True)
        sizes = [shares[0].num_samples for shares in dealt.shares]
        found = self._sums(dealt, of, sizes)
        for shares, values in zip(dealt.shares, found, strict=True):
            for sample, value in zip(shares[0].samples(), values.tolist(), strict=True):
                row, index = place[id(sample)]
                row[index] = value
        return sums

    @together
    def _sums(self, shares: Sequence[Share], of: str, sizes: list[int]) -> list[Tensor]:
        """On rank 0, for each rank: sums over the tokens of each sample of its share."""
        parts: list[NDArray[Any]] = [np.empty(0)]
        for batch, _ in shares[0].microbatches():
            values_N = self._kl_of(batch) if of == "kl" else self._log_ratio_of(batch)
            count = len(batch.samples)
            parts.append(np.bincount(batch.sequence_N, values_N.numpy(), minlength=count))
        return self.ranks.gathered(torch.from_numpy(np.concatenate(parts)), sizes)

    def _kl_of(self, batch: Microbatch) -> Tensor:
        reference_N = self.model.reference_logprobs(batch).cpu()
        rollout_N = torch.from_numpy(batch.rollout_logprobs_N)
        return kl_estimate(rollout_N, reference_N, self._kl.estimator)

    def _log_ratio_of(self, batch: Microbatch) -> Tensor:
        return (self._old_logprobs(batch) - self.model.reference_logprobs(batch)).cpu()

    @together
    def state(self) -> LearnerState:
        """Copies of the trained parameters and Adam's moments; over ranks, on rank 0 alone."""
        tensors = trained_state.read(self._parameters, self._optimizer)
        return LearnerState(tensors, self._optimizer_step, self.model.base_digest)

    def restore(self, state: LearnerState) -> None:
        """Go on from ``state``, bit for bit.

        Raises:
            IncompatibleWeightsError: its tensors do not fit the policy's; nothing was changed.
            BaseChangedError: they were learnt on another model; nothing was changed.
        """
        check_fits(f"policy '{self.policy}'", state, self._parameters, self.model.base_digest)
        self._restore(state)

    @together
    def _restore(self, state: LearnerState) -> None:
        """Take this rank's part of ``state``, whose numbers rank 0 has."""
        trained_state.write(
            state.tensors,
            self._parameters,
            self._optimizer,
            self.model.load_trainable,
            is_spread=self.ranks.size > 1,
        )
        self._optimizer_step = state.optimizer_step

    def _rate(self, step: int) -> float:
        return learning_rate(self._config, max(0, step), self._num_optimizer_steps)

    def _is_used(self, group: CreditedGroup) -> bool:
        """Whether the loss of ``group`` has a gradient."""
        return group.num_samples > 0 and (self._keeps_flat_groups or group.has_signal)

    def _deal(self, parts: Sequence[Sequence[CreditedGroup]], *, with_all: bool = False) -> Dealt:
        """The micro-batches of each minibatch, dealt to the ranks; the same groups, the same ones.

        Groups without signal have no gradient under a loss without entropy or KL: they count in
        the denominator and are not computed, except ``with_all``.
        """
        by_token = self._algorithm.aggregation == "token"
        batches: list[list[list[Block]]] = []
        for groups in parts:
            used = [group for group in groups if with_all or self._is_used(group)]
            prompts = [prompt for group in used for prompt in group.prompts]
            shares_prompts = self.model.shares_prompts
            batches.append(lay_out(prompts, self._batch, shares_prompts=shares_prompts))
        denominators = [
            sum(g.num_tokens if by_token else g.num_samples for g in groups) for groups in parts
        ]
        return deal(batches, denominators, [len(groups) for groups in parts], self.ranks.size)

    def _fixed_logprobs(self, share: Share) -> list[Fixed]:
        """Log probabilities needed from before the step's first update, by micro-batch."""
        needs = self._algorithm.needs
        return [
            Fixed(
                old_N=self._old_logprobs(batch) if needs.old else None,
                reference_N=self.model.reference_logprobs(batch) if needs.reference else None,
            )
            for batch, _ in (share.microbatches() if needs.old or needs.reference else ())
        ]

    @torch.no_grad()
    def _old_logprobs(self, batch: Microbatch) -> Tensor:
        return self.model.logprobs(batch, want_entropy_grad=False)[0]

    def _drift(self, share: Share, fixed: Sequence[Fixed]) -> Minibatch:
        """How far the present weights are from the rollout's probabilities; no gradient."""
        outcome = Minibatch(sums=defaultdict(float))
        for number, (batch, counts) in enumerate(share.microbatches()):
            old_N = fixed[number].old_N if fixed else None
            trainer_N = self._old_logprobs(batch) if old_N is None else old_N
            if counts:
                outcome.add_drift(trainer_N, torch.from_numpy(batch.rollout_logprobs_N))
        return outcome.over(self.ranks)

    def _minibatch(self, share: Share, fixed: Sequence[Fixed], number: int) -> Minibatch:
        """Accumulate the gradient of all groups, then step once."""
        outcome = self._gradient(share, fixed)
        reached("trainer.learning", self._optimizer_step)
        for group_parameters in self._optimizer.param_groups:
            group_parameters["lr"] = self._rate(self._optimizer_step)
        # Only steps with groups count: a policy whose turn it is not keeps its warm-up.
        self._optimizer_step += 1 if share.num_groups else 0
        if outcome.num_tokens:
            self._update(outcome, number)
        return outcome

    def _gradient(self, share: Share, fixed: Sequence[Fixed]) -> Minibatch:
        """Add the gradient of all groups to the parameters'."""
        outcome = Minibatch(sums=defaultdict(float))
        for number, (batch, counts) in enumerate(share.microbatches()):
            logprobs = fixed[number] if fixed else Fixed()
            self._backward(batch, logprobs, share.denominator, outcome, counts)
        return outcome.over(self.ranks)

    def _backward(
        self,
        batch: Microbatch,
        fixed: Fixed,
        denominator: int,
        outcome: Minibatch,
        counts: bool = True,
    ) -> None:
        device = self.model.device
        with_entropy = self._algorithm.needs.entropy
        trainer_logprobs, entropy = self.model.logprobs(batch, want_entropy_grad=with_entropy)
        rollout_logprobs = torch.from_numpy(batch.rollout_logprobs_N).to(device)
        result = self._algorithm.loss(
            LossInputs(
                trainer_logprobs_N=trainer_logprobs,
                rollout_logprobs_N=rollout_logprobs,
                advantages_N=torch.from_numpy(batch.advantages_N).to(device),
                sequence_N=torch.from_numpy(batch.sequence_N).to(device),
                weights_N=torch.from_numpy(self._weights(batch)).to(device),
                entropy_N=entropy if with_entropy else None,
                old_logprobs_N=fixed.old_N,
                ref_logprobs_N=fixed.reference_N,
            )
        )
        loss = result.loss_sum / denominator if counts else result.loss_sum * 0.0
        spread_loss: Any = loss * self.ranks.size  # FSDP2 takes the mean over ranks
        spread_loss.backward()
        with torch.no_grad():
            log_ratio = trainer_logprobs - rollout_logprobs
            drift = torch.expm1(log_ratio).abs().max()
            values = [loss.detach(), entropy.sum(), log_ratio.max(), drift]
            numbers = torch.stack(values).tolist()
        scale = 1.0 if counts else 0.0
        outcome.loss += numbers[0]
        outcome.sums["entropy"] += scale * numbers[1]
        outcome.ratio_max = max(outcome.ratio_max, math.exp(min(numbers[2], 80.0)))
        outcome.drift_max = max(outcome.drift_max, numbers[3])
        by_loss = {loss_metric_name(name): value for name, value in result.metric_sums.items()}
        for name, value in (correction(fixed.old_N, rollout_logprobs) | by_loss).items():
            outcome.sums[name] += scale * value
        outcome.num_tokens += len(batch.targets_N) if counts else 0
        outcome.sums[FLOPS] += scale * self.model.flops.of(batch)

    def _weights(self, batch: Microbatch) -> NDArray[np.float32]:
        """1 a token, or 1 / length where completions are averaged over their token means."""
        if self._algorithm.aggregation != "sequence":
            return np.ones(len(batch.targets_N), dtype=np.float32)
        lengths = np.bincount(batch.sequence_N)[batch.sequence_N]
        return (1.0 / lengths).astype(np.float32)

    def _update(self, outcome: Minibatch, number: int) -> None:
        outcome.grad_norm = self._clip(self._config.max_grad_norm)
        if not outcome.is_finite():
            self._optimizer.zero_grad(set_to_none=True)
            raise NonFiniteError(
                f"Policy '{self.policy}': loss is {outcome.loss} and gradient norm "
                f"{outcome.grad_norm} at optimizer step {self._optimizer_step}; no weight was "
                "changed.",
                minibatch=number,
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _clip(self, limit: float) -> float:
        """Clip the gradient to ``limit``; returns its L2 norm before."""
        parameters = list(self._parameters.values())
        return float(whole(torch.nn.utils.clip_grad_norm_(parameters, limit)))

    def _offenders(self, groups: Sequence[CreditedGroup]) -> Sequence[CreditedGroup]:
        """The groups whose loss or gradient alone is not finite; all groups if there are none."""
        offenders = [group for group in groups if not self._is_finite(self._deal([[group]]))]
        return offenders or groups

    @together
    def _is_finite(self, shares: Sequence[Share]) -> bool:
        """Whether loss and gradient of the one minibatch are; no weight changes."""
        outcome = self._gradient(shares[0], self._fixed_logprobs(shares[0]))
        outcome.grad_norm = self._clip(math.inf) if outcome.num_tokens else 0.0
        self._optimizer.zero_grad(set_to_none=True)
        return outcome.is_finite()

    @together
    def _has_finite_weights(self) -> bool:
        parameters = self._parameters.values()
        return all(bool(whole(p.detach().isfinite().all())) for p in parameters)

    def _blame(self, groups: Sequence[CreditedGroup]) -> str:
        if not self._has_finite_weights():
            return "The weights themselves hold numbers that are not finite."
        names = [group.record.group_id for group in groups]
        shown = ", ".join(names[:_NAMED_GROUPS])
        more = f" and {len(names) - _NAMED_GROUPS} more" if len(names) > _NAMED_GROUPS else ""
        return f"Groups at fault: {shown}{more}."
