"""Chooses how a trainer lays out its micro-batches, so that a step fits into its GPU. Pure.

Owns the choice and the refusal. The prediction is ``memory``'s.
"""

from dataclasses import dataclass

from troupe.errors import InvalidArgumentError
from troupe.spec.batch import BatchSpec
from troupe.spec.critics import can_have_trainer_each, critic_networks
from troupe.spec.job import JobSpec
from troupe.spec.memory import GB, USABLE, trainer_peak

_FEWEST_TOKENS = 1024
_MOST_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class Fit:
    """A batch that fits, and its predicted peak; ``peak_bytes`` is None for an unknown model."""

    batch: BatchSpec
    peak_bytes: float | None


def fit_batch(spec: JobSpec, gpu_bytes: int, *, ranks: int = 1) -> Fit:
    """The batch that a trainer on GPUs of ``gpu_bytes`` uses.

    Where the spec leaves the tokens of a pass to the trainer, it takes as many as fit into 90 % of
    the memory, up to 16,384, with their activations kept: a pass over few leaves a GPU waiting for
    its kernels to be launched. Where its upper limit does not fit so, activations are computed
    again; then the limit is halved, down to 1,024. A set ``checkpoint_activations`` stays.

    Raises:
        InvalidArgumentError: no such batch fits; says what to change.
    """
    asked = spec.batch
    budget = asked.budget
    choices = [False, True]
    if asked.checkpoint_activations is not None:
        choices = [asked.checkpoint_activations]
    if asked.tokens_per_row is None:
        for is_checkpointed in choices:
            wide = _widest(spec, gpu_bytes, ranks, is_checkpointed=is_checkpointed)
            if wide is not None:
                return wide
    peak: float | None = None
    while True:
        for checkpointed in choices:
            tokens = max(budget, _longest(spec))
            peak = trainer_peak(
                spec, tokens=tokens, checkpoint_activations=checkpointed, ranks=ranks
            )
            if peak is None or peak <= USABLE * gpu_bytes:
                update = {"checkpoint_activations": checkpointed and peak is not None}
                if peak is None:
                    update = {"checkpoint_activations": choices[-1]}
                elif budget < asked.budget:
                    update |= {"tokens_per_row": budget, "rows_per_microbatch": 1}
                return Fit(asked.model_copy(update=update), peak)
        if budget <= _FEWEST_TOKENS:
            raise InvalidArgumentError(_refusal(spec, peak or 0.0, gpu_bytes), pointer="/policies")
        budget //= 2


def _widest(spec: JobSpec, gpu_bytes: int, ranks: int, *, is_checkpointed: bool) -> Fit | None:
    """The most tokens of a pass that fit, at least those of the default; None where none do."""
    for tokens in range(_MOST_TOKENS, spec.batch.budget - 1, -_FEWEST_TOKENS):
        peak = trainer_peak(
            spec,
            tokens=max(tokens, _longest(spec)),
            checkpoint_activations=is_checkpointed,
            ranks=ranks,
        )
        if peak is not None and peak <= USABLE * gpu_bytes:
            update = {
                "tokens_per_row": tokens,
                "rows_per_microbatch": 1,
                "checkpoint_activations": is_checkpointed,
            }
            return Fit(spec.batch.model_copy(update=update), peak)
    return None


def _longest(spec: JobSpec) -> int:
    """Tokens of the longest completion; it can't be split."""
    return max(spec.sampling_for(agent).max_new_tokens for agent in spec.agents)


def ways_to_need_less(spec: JobSpec) -> list[str]:
    """What a user may change so that a trainer of ``spec`` needs less memory on its GPU."""
    policies = spec.policies.values()
    ways: list[str] = []
    if any(policy.dtype == "float32" for policy in policies):
        ways.append("set dtype: bfloat16")
    if any(policy.train.kind == "full" for policy in policies):
        ways.append("train adapters (train: {kind: lora})")
    if any(critic.train.kind == "full" for critic in critic_networks(spec).values()):
        ways.append("train the critic by an adapter (algorithm.critic.train: {kind: lora})")
    if any(spec.batch.sums_exactly(policy) for policy in policies):
        ways.append("set batch.gradient_sums: in_turn")
    if spec.batch.checkpoint_activations is False:
        ways.append("set batch.checkpoint_activations: true")
    if can_have_trainer_each(spec):
        ways.append("give each policy a trainer (trainer: {per_policy: true})")
    ways.append("lower max_new_tokens")
    if spec.algorithm.critic is None:  # a critic is on one rank
        ways.append("spread the trainer over more GPUs (trainer.gpus)")
    return [*ways, "take a smaller model"]


def _refusal(spec: JobSpec, peak: float, gpu_bytes: int) -> str:
    return (
        f"the trainer needs {peak / GB:.0f} GB on its GPU, and {USABLE:.0%} of {gpu_bytes / GB:.0f}"
        f" GB are {USABLE * gpu_bytes / GB:.0f}; {', or '.join(ways_to_need_less(spec))}"
    )
