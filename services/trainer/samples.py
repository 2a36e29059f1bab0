"""Groups with their credit: what the learner is given.

Owns the step from wire records and advantages to plain arrays. Never sees a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from troupe.api.records.v1 import records_pb2 as pb


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion to learn from.

    ``advantage`` holds for each of its tokens; ``temperature`` is the one it was sampled at.
    """

    token_ids: Sequence[int]
    rollout_logprobs: NDArray[np.float32]
    advantage: float
    temperature: float


@dataclass(frozen=True, slots=True)
class PromptSamples:
    """Completions of one prompt."""

    prompt: NDArray[np.int64]
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class CreditedGroup:
    """One group after credit assignment; ``record`` is the group as it came."""

    record: pb.Group
    advantages: Sequence[float]
    prompts: Sequence[PromptSamples]
    num_tokens: int

    @property
    def has_signal(self) -> bool:
        """Some advantage is not zero."""
        return any(self.advantages)


def credit(group: pb.Group, advantages: Sequence[float], temperature: float) -> CreditedGroup:
    """Attach ``advantages`` (index order) to the completions, gathered by prompt."""
    by_digest: dict[str, list[Sample]] = {prompt.digest: [] for prompt in group.prompts}
    for candidate, advantage in zip(group.candidates, advantages, strict=True):
        logprobs = np.array(candidate.rollout_logprobs, dtype=np.float32)
        sample = Sample(list(candidate.token_ids), logprobs, advantage, temperature)
        by_digest[candidate.prompt_digest].append(sample)
    prompts = [
        PromptSamples(np.array(prompt.token_ids, dtype=np.int64), by_digest[prompt.digest])
        for prompt in group.prompts
        if by_digest[prompt.digest]
    ]
    num_tokens = sum(len(candidate.token_ids) for candidate in group.candidates)
    return CreditedGroup(group, advantages, prompts, num_tokens)
