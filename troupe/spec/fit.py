"""Chooses how a trainer lays out its micro-batches, so that a step fits into its GPU. Pure.

Owns the choice and the refusal. The prediction is ``memory``'s.
"""

from dataclasses import dataclass

from troupe.errors import InvalidArgumentError
from troupe.spec.job import BatchSpec, JobSpec
from troupe.spec.memory import GB, USABLE, trainer_peak

_FEWEST_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Fit:
    """A batch that fits, and its predicted peak; ``peak_bytes`` is None for an unknown model."""

    batch: BatchSpec
    peak_bytes: float | None


def fit_batch(spec: JobSpec, gpu_bytes: int, *, ranks: int = 1) -> Fit:
    """The batch that a trainer on GPUs of ``gpu_bytes`` uses.

    Activations are kept while that fits into 90 % of the memory, else computed again; then the
    budget of tokens is halved, down to 1,024. What the spec sets is an upper limit, and a set
    ``checkpoint_activations`` stays.

    Raises:
        InvalidArgumentError: no such batch fits; says what to change.
    """
    asked = spec.batch
    budget = asked.tokens_per_row * asked.rows_per_microbatch
    choices = [False, True]
    if asked.checkpoint_activations is not None:
        choices = [asked.checkpoint_activations]
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
                elif budget < asked.tokens_per_row * asked.rows_per_microbatch:
                    update |= {"tokens_per_row": budget, "rows_per_microbatch": 1}
                return Fit(asked.model_copy(update=update), peak)
        if budget <= _FEWEST_TOKENS:
            raise InvalidArgumentError(_refusal(spec, peak or 0.0, gpu_bytes), pointer="/policies")
        budget //= 2


def _longest(spec: JobSpec) -> int:
    """Tokens of the longest completion; it can't be split."""
    return max(spec.sampling_for(agent).max_new_tokens for agent in spec.agents)


def _refusal(spec: JobSpec, peak: float, gpu_bytes: int) -> str:
    policies = spec.policies.values()
    ways: list[str] = []
    if any(policy.dtype == "float32" for policy in policies):
        ways.append("set dtype: bfloat16")
    if any(policy.train.kind == "full" for policy in policies):
        ways.append("train adapters (train: {kind: lora})")
    if spec.batch.checkpoint_activations is False:
        ways.append("remove batch.checkpoint_activations: false")
    if len(policies) > 1 and not spec.trainer.per_policy:
        ways.append("give each policy a trainer (trainer: {per_policy: true})")
    ways += [
        "lower max_new_tokens",
        "spread the trainer over more GPUs (trainer.gpus)",
        "take a smaller model",
    ]
    return (
        f"the trainer needs {peak / GB:.0f} GB on its GPU, and {USABLE:.0%} of {gpu_bytes / GB:.0f}"
        f" GB are {USABLE * gpu_bytes / GB:.0f}; {', or '.join(ways)}"
    )
