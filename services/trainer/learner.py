"""One policy's learning: credited groups in, an optimizer step out.

Owns model, optimizer and step count. Never sees Redis, replicas or files, and does not know
which algorithm it runs.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from services.trainer.model import PolicyModel
from services.trainer.packing import Microbatch, pack
from services.trainer.samples import CreditedGroup
from services.trainer.schedule import learning_rate
from troupe.algorithms.contract import Algorithm, LossInputs
from troupe.errors import JobFailedError
from troupe.spec.job import JobSpec


class NonFiniteError(JobFailedError):
    """Loss or gradient is not a number; ``groups`` are those of the minibatch."""

    reason = "NON_FINITE"

    def __init__(self, message: str, groups: Sequence[CreditedGroup]) -> None:
        super().__init__(message)
        self.groups = groups


@dataclass(frozen=True, slots=True)
class LearnOutcome:
    """What one training step did. ``metrics`` are means over tokens or minibatches."""

    metrics: dict[str, float]
    trained_tokens: int


@dataclass(frozen=True, slots=True)
class LearnerState:
    """All that a learner must remember: ``tensors`` by name and the optimizer's step count."""

    tensors: dict[str, Tensor]
    optimizer_step: int


class Learner:
    """Trains the weights of one policy."""

    def __init__(self, policy: str, spec: JobSpec, algorithm: Algorithm, *, device: str) -> None:
        self.policy = policy
        self.model = PolicyModel(policy, spec.policies[policy], seed=spec.seed, device=device)
        self._batch = spec.batch
        self._algorithm = algorithm
        self._config = spec.policies[policy].optimizer
        self._num_minibatches = spec.algorithm.minibatches
        self._num_optimizer_steps = spec.steps * spec.algorithm.minibatches
        self._optimizer_step = 0
        self._parameters = self.model.trainable()
        self._optimizer = torch.optim.AdamW(
            list(self._parameters.values()),
            lr=self._config.learning_rate,
            betas=(self._config.beta1, self._config.beta2),
            weight_decay=self._config.weight_decay,
            fused=True,
        )

    def step(self, groups: Sequence[CreditedGroup]) -> LearnOutcome:
        """One training step: each group is seen once, in one of the minibatches.

        Raises:
            NonFiniteError: before any weight of the minibatch changes.
        """
        totals: dict[str, float] = defaultdict(float)
        maximum, trained = 0.0, 0
        for part in range(self._num_minibatches):
            outcome = self._minibatch(groups[part :: self._num_minibatches])
            for name, value in outcome.sums.items():
                totals[name] += value
            maximum = max(maximum, outcome.ratio_max)
            trained += outcome.num_tokens
            totals["_loss"] += outcome.loss / self._num_minibatches
            totals["_grad_norm"] += outcome.grad_norm / self._num_minibatches
        loss, grad_norm = totals.pop("_loss", 0.0), totals.pop("_grad_norm", 0.0)
        metrics = {name: value / max(1, trained) for name, value in totals.items()}
        metrics |= {"loss": loss, "grad_norm": grad_norm, "ratio_max": maximum}
        metrics["learning_rate"] = self._rate(self._optimizer_step - 1)
        low, high = metrics.get("clip_fraction_low"), metrics.get("clip_fraction_high")
        if low is not None and high is not None:
            metrics["clip_fraction"] = low + high
        return LearnOutcome(metrics, trained)

    def state(self) -> LearnerState:
        """Copies of the trained parameters and Adam's moments."""
        tensors: dict[str, Tensor] = {"rng": torch.get_rng_state()}
        for name, parameter in self._parameters.items():
            tensors[f"param/{name}"] = parameter.detach().cpu().clone()
            for key, value in self._optimizer.state[parameter].items():
                tensors[f"adam.{key}/{name}"] = value.detach().cpu().clone()
        return LearnerState(tensors, self._optimizer_step)

    def restore(self, state: LearnerState) -> None:
        """Go on from ``state``, bit for bit."""
        torch.set_rng_state(state.tensors["rng"])
        self.model.load_trainable(
            {name: state.tensors[f"param/{name}"] for name in self._parameters}
        )
        self._optimizer.state.clear()
        for name, parameter in self._parameters.items():
            found = {
                key: state.tensors[f"adam.{key}/{name}"].clone().to(parameter.device)
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{key}/{name}" in state.tensors
            }
            if found:
                self._optimizer.state[parameter] = found
        self._optimizer_step = state.optimizer_step

    def _rate(self, step: int) -> float:
        return learning_rate(self._config, max(0, step), self._num_optimizer_steps)

    def _minibatch(self, groups: Sequence[CreditedGroup]) -> "_Minibatch":
        """Accumulate the gradient of all groups, then step once.

        Groups without signal have no gradient under a loss without entropy: they count in the
        denominator and are not computed.
        """
        num_tokens = sum(group.num_tokens for group in groups)
        with_entropy = self._algorithm.needs_entropy
        used = [group for group in groups if with_entropy or group.has_signal]
        prompts = [prompt for group in used for prompt in group.prompts]
        outcome = _Minibatch(sums=defaultdict(float))
        for batch in pack(prompts, self._batch):
            self._backward(batch, num_tokens, outcome)
        for group_parameters in self._optimizer.param_groups:
            group_parameters["lr"] = self._rate(self._optimizer_step)
        self._optimizer_step += 1
        if outcome.num_tokens:
            self._update(outcome, used)
        return outcome

    def _backward(self, batch: Microbatch, num_tokens: int, outcome: "_Minibatch") -> None:
        device = self.model.device
        with_entropy = self._algorithm.needs_entropy
        trainer_logprobs, entropy = self.model.logprobs(batch, want_entropy_grad=with_entropy)
        rollout_logprobs = torch.from_numpy(batch.rollout_logprobs_N).to(device)
        result = self._algorithm.loss(
            LossInputs(
                trainer_logprobs_N=trainer_logprobs,
                rollout_logprobs_N=rollout_logprobs,
                advantages_N=torch.from_numpy(batch.advantages_N).to(device),
                sequence_N=torch.from_numpy(batch.sequence_N).to(device),
                entropy_N=entropy if with_entropy else None,
            )
        )
        loss = result.loss_sum / num_tokens
        backward: Any = loss.backward
        backward()
        with torch.no_grad():
            log_ratio_max = (trainer_logprobs - rollout_logprobs).max()
            numbers = torch.stack([loss.detach(), entropy.sum(), log_ratio_max]).tolist()
        outcome.loss += numbers[0]
        outcome.sums["entropy"] += numbers[1]
        outcome.ratio_max = max(outcome.ratio_max, math.exp(min(numbers[2], 80.0)))
        for name, value in result.metric_sums.items():
            outcome.sums[name] += value
        outcome.num_tokens += len(batch.targets_N)

    def _update(self, outcome: "_Minibatch", groups: Sequence[CreditedGroup]) -> None:
        limit = self._config.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(list(self._parameters.values()), limit)
        outcome.grad_norm = float(norm)
        if not (math.isfinite(outcome.loss) and math.isfinite(outcome.grad_norm)):
            self._optimizer.zero_grad(set_to_none=True)
            raise NonFiniteError(
                f"Policy '{self.policy}': loss is {outcome.loss} and gradient norm "
                f"{outcome.grad_norm} at optimizer step {self._optimizer_step}; no weight was "
                "changed. Look at the saved groups, then lower the learning rate or use float32.",
                groups,
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


@dataclass(slots=True)
class _Minibatch:
    """Running sums of one minibatch."""

    sums: defaultdict[str, float]
    loss: float = 0.0
    grad_norm: float = 0.0
    ratio_max: float = 0.0
    num_tokens: int = 0
