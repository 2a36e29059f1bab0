"""One policy's optimizer: AdamW at the scheduled learning rate, on clipped gradients.

Owns the number of the optimizer step, and the refusal of a gradient that is not finite. Never sees
a group, and never computes a gradient.
"""

from collections.abc import Mapping

import torch
from torch import nn

from troupe.algorithms.algorithm import Algorithm
from troupe.spec.job import JobSpec
from troupe_trainer.learn.device_memory import DeviceMemory
from troupe_trainer.learn.outcome import Minibatch, NonFiniteError
from troupe_trainer.learn.schedule import learning_rate, num_updates
from troupe_trainer.model.ranks.group import whole


class PolicyOptimizer(torch.optim.AdamW):
    """AdamW over the trained ``parameters`` of ``policy``."""

    def __init__(
        self,
        policy: str,
        spec: JobSpec,
        algorithm: Algorithm,
        parameters: Mapping[str, nn.Parameter],
        memory: DeviceMemory,
    ) -> None:
        self._policy = policy
        self._memory = memory
        self._config = spec.policies[policy].optimizer
        self.learnt = list(parameters.values())
        """The parameters that it moves."""
        self._num_updates = num_updates(policy, spec, algorithm.sampler())
        self.next_step = 0
        """The number of the next optimizer step. Only steps with a gradient count: flat ones,
        and a policy whose turn it is not, keep their warm-up."""
        super().__init__(
            self.learnt,
            lr=self._config.learning_rate,
            betas=(self._config.beta1, self._config.beta2),
            weight_decay=self._config.weight_decay,
            fused=True,
        )

    @property
    def last_rate(self) -> float:
        """Learning rate of the optimizer step before the next one."""
        return self._rate(self.next_step - 1)

    def update(self, outcome: Minibatch, number: int) -> None:
        """Clip the gradient and move the weights; ``number`` is the minibatch's in its step.

        A gradient of zeros is no optimizer step.

        Raises:
            NonFiniteError, JobFailedError: before any weight changes.
        """
        outcome.grad_norm = self.clip(self._config.max_grad_norm)
        if not outcome.is_finite():
            self.zero_grad(set_to_none=True)
            raise NonFiniteError(
                f"Policy '{self._policy}': loss is {outcome.loss}, the demonstrations' "
                f"{outcome.imitated.loss} and gradient norm {outcome.grad_norm} at optimizer step "
                f"{self.next_step + 1}; no weight was changed.",
                minibatch=number,
            )
        if not outcome.grad_norm:  # momentum and weight decay alone teach nothing
            self.zero_grad(set_to_none=True)
            return
        for parameters in self.param_groups:
            parameters["lr"] = self._rate(self.next_step)
        self.next_step += 1
        self._memory.doing = "the optimizer's step"
        self._memory.repeat(self.step, self._drop_half_made)
        self.zero_grad(set_to_none=True)

    def clip(self, limit: float) -> float:
        """Clip the gradient to ``limit``; returns its L2 norm before."""
        return float(whole(torch.nn.utils.clip_grad_norm_(self.learnt, limit)))

    def _drop_half_made(self) -> None:
        """Remove moments that memory ran out for: AdamW makes all before it moves a weight."""
        for parameter, moments in list(self.state.items()):
            if "exp_avg_sq" not in moments:
                del self.state[parameter]

    def _rate(self, step: int) -> float:
        return learning_rate(self._config, max(0, step), self._num_updates)
