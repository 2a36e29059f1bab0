"""One policy's learning: credited groups in, an optimizer step out.

Owns model, optimizer and step count. Never sees Redis, replicas or files, and does not know
which algorithm it runs.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from troupe.algorithms.adaptive import Coefficients
from troupe.algorithms.algorithm import Algorithm
from troupe.runtime.faults import reached
from troupe.runtime.run_folder import part_names
from troupe.spec.job import JobSpec
from troupe_trainer.learn import trained_state
from troupe_trainer.learn.candidate_sums import by_candidate, sums_of
from troupe_trainer.learn.demonstrations import Demonstrations
from troupe_trainer.learn.device_memory import DeviceMemory
from troupe_trainer.learn.first_minibatch import FirstMinibatch
from troupe_trainer.learn.gradient_sums import Exact, InTurn
from troupe_trainer.learn.layout import Layout
from troupe_trainer.learn.optimizer import PolicyOptimizer
from troupe_trainer.learn.outcome import (
    FLOPS,
    Fixed,
    LearnOutcome,
    Minibatch,
    NonFiniteError,
    blame,
    parity,
    step_metrics,
)
from troupe_trainer.learn.passes import Passes
from troupe_trainer.learn.share_passes import divided, drift_of, gradient_of
from troupe_trainer.learn.validation import oldest_version
from troupe_trainer.model.flops import peak_flops
from troupe_trainer.model.kernels import AttentionChoice, choose
from troupe_trainer.model.learner_state import LearnerState, check_fits
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.packing import Block, microbatch
from troupe_trainer.model.peak_memory import peak_bytes, reset_peak
from troupe_trainer.model.ranks.exchange import gathered
from troupe_trainer.model.ranks.group import SOLO, Ranks, together, whole
from troupe_trainer.model.ranks.shard import own_part
from troupe_trainer.model.relocation import Move, relocate
from troupe_trainer.model.shares import Dealt, Share
from troupe_trainer.model.stored import begin_part
from troupe_trainer.samples import CreditedGroup, PromptSamples


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
        held_bytes: int = 0,
        teacher: PolicyModel | None = None,
        demonstrations: Demonstrations | None = None,
        is_compiled: bool = False,
    ) -> None:
        """``held_bytes``: for gradients that are summed in turn, of windows whose turn has not
        come. ``teacher``: for steps of an algorithm that needs one. ``demonstrations``: imitated
        beside the groups; over ranks, rank 0 has them. ``is_compiled``: see ``compiled``; on one
        rank alone."""
        self.policy = policy
        self.ranks = ranks
        self._make = (spec, algorithm)
        policy_spec = spec.policies[policy]
        self.model = PolicyModel(
            policy,
            policy_spec,
            seed=spec.seed,
            device=device,
            kernels=choose(policy_spec, device, attention, is_compiled=is_compiled),
            checkpoint_activations=bool(spec.batch.checkpoint_activations),
            shares=[*shares, *([teacher] if teacher else [])] if ranks.size == 1 else (),
            is_spread=ranks.size > 1,
        )
        self._algorithm = algorithm
        self._demonstrations = demonstrations
        self._loss = spec.algorithm.loss
        if spec.trains(policy) and (algorithm.needs.reference or algorithm.needs.log_ratios):
            self.model.keep_reference()
        if teacher is not None:
            self.model.keep_teacher(teacher)
        self.model.spread(ranks, is_offloaded=spec.trainer.offload)
        self._sums_exactly = spec.batch.sums_exactly(policy_spec) and ranks.size == 1
        self._layout = Layout(
            policy,
            spec,
            algorithm,
            shares_prompts=self.model.shares_prompts,
            num_ranks=ranks.size,
            sums_exactly=self._sums_exactly,
            trained_vision=self.model.vision if policy_spec.train.vision else None,
        )
        self._memory = DeviceMemory(policy, spec, self.model.device, ranks)
        self._passes = Passes(self.model, algorithm, Coefficients.first(self._loss), self._memory)
        self._parameters = self.model.trainable()
        self._optimizer = PolicyOptimizer(policy, spec, algorithm, self._parameters, self._memory)
        self._held_bytes = held_bytes
        self._first = self._nothing_ahead()

    def alone(self) -> "Learner":
        """This learner on one process: a copy if it is spread over ranks, else itself."""
        if self.ranks.size == 1:
            return self
        learner = Learner(self.policy, *self._make, device="cpu")
        learner.restore(self.state())
        return learner

    def next_window(self, num_tickets: int, finished: Collection[int]) -> int | None:
        """A window whose tickets are all ``finished`` and that ``ahead`` may compute."""
        return self._first.next_window(num_tickets, finished)

    def tickets_of(self, window: int, num_tickets: int) -> Sequence[int]:
        """Positions of the tickets of ``window``, in a round of ``num_tickets``."""
        return self._layout.tickets_of(window, num_tickets)

    def ahead(self, window: int, groups: Sequence[CreditedGroup]) -> None:
        """Begin the next step with a window of finished tickets; ``groups`` are all of theirs.

        Only its part of the first minibatch: the others meet weights that this one moves. Not over
        several ranks.
        """
        if not self._first.is_begun:
            reset_peak(self.model.device)
        mine = self._layout.minibatches(groups, self._optimizer.next_step)[0]
        self._memory.repeat(
            lambda: self._first.take(window, mine, self._compute), self.discard_ahead
        )

    def relocate(self, move: Move) -> None:
        """Move everything that is kept between steps; see `model.relocation`."""
        relocate(self.model.modules(), self._optimizer, move)

    def discard_ahead(self) -> None:
        """Forget what the next step was begun with."""
        self._optimizer.zero_grad(set_to_none=True)
        self._first = self._nothing_ahead()

    def step(
        self, groups: Sequence[CreditedGroup], version: int | None = None, *, is_flat: bool = False
    ) -> LearnOutcome:
        """Take one training step: in each epoch a group is in one of the minibatches.

        Groups of one ticket follow each other. What ``ahead`` computed of the very same groups is
        taken from there; the weights are the same bits with and without. ``version`` is that of the
        present weights: parity is not measured on groups of older ones. ``is_flat``: a filter left
        all groups out; demonstrations are shown all the same.

        Raises:
            NonFiniteError: before any weight of the minibatch changes.
        """
        parts = self._layout.minibatches(groups, self._optimizer.next_step)
        is_current = version is None or all(oldest_version(g.record) == version for g in groups)
        try:
            shown, weights = self._imitated(parts, is_flat=is_flat)
            outcome = self._step(self._deal_step(parts), is_current, shown, weights)
        except NonFiniteError as error:
            self.discard_ahead()
            at_fault = self._offenders(parts[error.minibatch])
            raise NonFiniteError(
                f"{error.message} {blame(at_fault, self._has_finite_weights())} Look at them, then "
                "lower the learning rate or use float32.",
                at_fault,
            ) from error
        self._first = self._nothing_ahead()
        return replace(outcome, trained_groups=sum(self._layout.is_used(group) for group in groups))

    def _nothing_ahead(self) -> FirstMinibatch:
        parameters = list(self._parameters.values())
        exact, in_turn = partial(Exact, parameters), partial(InTurn, parameters, self._held_bytes)
        return FirstMinibatch(self._layout, exact if self._sums_exactly else in_turn)

    def _compute(self, blocks: Sequence[Block]) -> Minibatch:
        batch = microbatch(blocks)
        return self._passes.gradient(batch, self._passes.fixed(batch), counts=True)

    def _imitated(
        self, parts: Sequence[Sequence[CreditedGroup]], *, is_flat: bool
    ) -> tuple[Dealt, list[float]]:
        """Demonstrations of each minibatch with groups, dealt to the ranks, and their weights."""
        prompts = [list[PromptSamples]() for _ in parts]
        weights = [0.0 for _ in parts]
        optimizer_step, demonstrations = self._optimizer.next_step, self._demonstrations
        for number, groups in enumerate(parts):
            if demonstrations is not None and (groups or is_flat):
                prompts[number] = demonstrations.of_update(optimizer_step)
                weights[number] = demonstrations.weight(optimizer_step)
                optimizer_step += 1
        return self._layout.imitated(prompts), weights

    @together
    def _step(
        self,
        shares: Sequence[Share],
        is_current: bool,
        shown: Sequence[Share],
        weights: Sequence[float],
    ) -> LearnOutcome:
        """A step over this rank's shares of the minibatches; the outcome is of all ranks.

        ``shown``: its shares of the minibatches' demonstrations, and ``weights`` theirs.
        """
        if not self._first.is_begun:
            reset_peak(self.model.device)
        fixed = [self._fixed(share) for share in shares[1:]]
        later = [*zip(shares[1:], fixed, strict=True)] if is_current else []
        in_first_epoch = later[: self._layout.num_minibatches - 1]
        unmoved = [drift_of(*each, self._passes, self.ranks) for each in in_first_epoch]
        outcomes = [
            self._minibatch(
                share, fixed[number - 1] if number else None, number, (shown[number], weight)
            )
            for number, (share, weight) in enumerate(zip(shares, weights, strict=True))
        ]
        trained = sum(outcome.num_tokens for outcome in outcomes)
        speed = peak_flops(self.model.device)
        num_flops = sum(o.sums.get(FLOPS, 0.0) + o.imitated.flops for o in outcomes)
        ideal_s = None if speed is None else num_flops / (speed * self.ranks.size)
        metrics = step_metrics(outcomes)
        if is_current:
            metrics |= parity([*unmoved, *outcomes[:1]])
        metrics["learning_rate"] = self._optimizer.last_rate
        metrics |= self._passes.coefficients.metrics(self._loss)
        if trained:
            self._passes.coefficients = self._passes.coefficients.after(metrics, self._loss)
        return LearnOutcome(metrics, trained, peak_bytes(self.model.device), ideal_s=ideal_s)

    @property
    def kl_coef(self) -> float:
        """Weight of the KL term in the next step."""
        return self._passes.coefficients.kl

    def reference_kl(self, groups: Sequence[CreditedGroup]) -> list[list[float]]:
        """KL(rollout || reference) of each candidate, summed over its tokens, in index order."""
        return self._candidate_sums(groups, "kl")

    def log_ratios(self, groups: Sequence[CreditedGroup]) -> list[list[float]]:
        """log pi / pi_ref of each candidate under the present weights, in index order."""
        return self._candidate_sums(groups, "log_ratio")

    def _candidate_sums(self, groups: Sequence[CreditedGroup], of: str) -> list[list[float]]:
        """Sums over each candidate's tokens; 0 for one that is not among a group's samples."""
        dealt = self._deal(groups, with_all=True)
        sizes = [shares[0].num_samples for shares in dealt.shares]
        return by_candidate(groups, dealt, self._sums(dealt, of, sizes))

    @together
    def _sums(self, shares: Sequence[Share], of: str, sizes: list[int]) -> list[Tensor]:
        """On rank 0, for each rank: sums over the tokens of each sample of its share."""
        kl = self._loss.kl.estimator if of == "kl" else None
        sums = sums_of(shares[0], lambda batch: self._passes.against_reference(batch, kl))
        return self.ranks.gathered(torch.from_numpy(sums), sizes)

    @together
    def state(self) -> LearnerState:
        """Copies of the trained parameters and Adam's moments; over ranks, on rank 0 alone."""
        return self._state(trained_state.read(self._parameters, self._optimizer, gathered))

    def state_in(self, path: Path) -> LearnerState:
        """The state, which over ranks is rank 0's part alone: the others begin to write theirs.

        Beside ``path``, under ``part_names``. An adapter's is small, and gathered as in ``state``.
        """
        if self.model.is_lora or self.ranks.num_shards == 1:
            return self.state()
        return self._part(str(path))

    @together
    def _part(self, path: str) -> LearnerState:
        """Copies of this rank's part; ranks above 0 write them to a file meanwhile."""
        rank, count = self.ranks.rank, self.ranks.num_shards
        own = partial(own_part, is_first=rank == 0)
        tensors = trained_state.read(self._parameters, self._optimizer, own)
        if 0 < rank < count:
            begin_part(tensors, Path(path).with_name(part_names(Path(path).name, count)[rank]))
        return self._state(tensors, num_parts=count)

    def _state(self, tensors: dict[str, Tensor], *, num_parts: int = 1) -> LearnerState:
        small = trained_state.coefficients(self._passes.coefficients, self._loss)
        return LearnerState(
            tensors | small, self._optimizer.next_step, self.model.base_digest, num_parts
        )

    def restore(self, state: LearnerState) -> None:
        """Go on from ``state``, bit for bit.

        Raises:
            IncompatibleWeightsError: its tensors do not fit the policy's; nothing was changed.
            BaseChangedError: they were learnt on another model; nothing was changed.
        """
        check_fits(f"policy '{self.policy}'", state, self._parameters, self.model.base_digest)
        if self.model.is_lora:  # rank 0 gives it out: other nodes need not see its file
            state = replace(state, tensors=dict(state.tensors))
        self._restore(state)

    @together
    def _restore(self, state: LearnerState) -> None:
        """Take this rank's part of ``state``: from its files, else from rank 0."""
        trained_state.write(
            state.tensors,
            self._parameters,
            self._optimizer,
            self.model.load_trainable,
            is_spread=self.ranks.size > 1,
        )
        self._optimizer.next_step = state.optimizer_step
        self._passes.coefficients = trained_state.coefficients_in(
            state.tensors, self._loss, is_spread=self.ranks.size > 1
        )

    def _deal(self, groups: Sequence[CreditedGroup], *, with_all: bool = False) -> Dealt:
        """One minibatch of ``groups``."""
        batches = self._layout.microbatches(groups, with_all=with_all)
        return self._layout.dealt([batches], [groups])

    def _deal_step(self, parts: Sequence[Sequence[CreditedGroup]]) -> Dealt:
        """The step's minibatches: the first in windows, without those that are computed."""
        windows = self._layout.windows(parts[0])
        if not self._first.fits(windows):
            self.discard_ahead()
        first = self._first.rest(windows)
        rest = [self._layout.microbatches(groups) for groups in parts[1:]]
        return self._layout.dealt([first, *rest], parts)

    def _fixed(self, share: Share) -> list[Fixed] | None:
        """By micro-batch, what a later minibatch needs from before the first update."""
        needs = self._algorithm.needs
        if not (needs.old or needs.reference):
            return None
        return [self._passes.fixed(batch) for batch, _ in share.microbatches()]

    def _minibatch(
        self,
        share: Share,
        fixed: Sequence[Fixed] | None,
        number: int,
        shown: tuple[Share, float],
    ) -> Minibatch:
        """Accumulate the gradient of all groups and demonstrations, then step once."""
        is_in_windows = number == 0 and self.ranks.size == 1

        def summed() -> Minibatch:
            if is_in_windows:
                outcome = divided(self._first.finish(self._compute), share, self._optimizer.learnt)
            else:
                outcome = self._gradient(share, fixed)
            if shown[0].denominator:
                outcome.imitated = self._passes.imitate(*shown)
            return outcome

        def undo() -> None:
            self._optimizer.zero_grad(set_to_none=True)
            if is_in_windows:
                self._first.restart()

        outcome = self._memory.repeat(summed, undo)
        reached("trainer.learning", self._optimizer.next_step)
        if outcome.is_update:
            self._optimizer.update(outcome, number)
            self.model.revision += 1
        return outcome

    def _gradient(self, share: Share, fixed: Sequence[Fixed] | None) -> Minibatch:
        """Add up the micro-batches' gradients, and divide once."""
        outcome = gradient_of(share, fixed, self._passes, self.ranks)
        return divided(outcome, share, self._parameters.values())

    def _offenders(self, groups: Sequence[CreditedGroup]) -> Sequence[CreditedGroup]:
        """The groups whose loss or gradient alone is not finite; all groups if there are none."""
        return [group for group in groups if not self._is_finite(self._deal([group]))] or groups

    @together
    def _is_finite(self, shares: Sequence[Share]) -> bool:
        """Whether loss and gradient of the one minibatch are; no weight changes."""
        outcome = self._gradient(shares[0], None)
        outcome.grad_norm = self._optimizer.clip(math.inf) if outcome.num_tokens else 0.0
        self._optimizer.zero_grad(set_to_none=True)
        return outcome.is_finite()

    @together
    def _has_finite_weights(self) -> bool:
        return all(bool(whole(p.detach().isfinite().all())) for p in self._parameters.values())
