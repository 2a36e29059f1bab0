"""Credited groups, the learner's input.

Owns the step from wire records and advantages to plain arrays. Never sees a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from troupe.api.records.v1 import records_pb2 as pb
from troupe.candidates import Sample, sample_of
from troupe.tasks.content import ImagePart
from troupe.vision.wire import images_from_proto


@dataclass(frozen=True, slots=True)
class Lesson:
    """One prompt, the return that followed, and the value predicted before.

    Example: ``Lesson((5, 9, 2), target=1.0, predicted=0.25)``.
    """

    prompt: tuple[int, ...]
    target: float
    predicted: float


@dataclass(frozen=True, slots=True)
class PromptSamples:
    """Completions of one prompt; ``images`` are those of the prompt, in order."""

    prompt: NDArray[np.int32]
    samples: Sequence[Sample]
    images: Sequence[ImagePart] = ()


@dataclass(frozen=True, slots=True)
class CreditedGroup:
    """One group after credit assignment; ``record`` is the group as received.

    ``num_filtered`` candidates of it are not among its samples. ``is_taught``: a teacher scores
    each of its tokens, whatever it earned.
    """

    record: pb.Group
    advantages: Sequence[float]
    prompts: Sequence[PromptSamples]
    num_tokens: int
    num_filtered: int = 0
    is_taught: bool = False

    @property
    def num_samples(self) -> int:
        """Completions to learn from."""
        return sum(len(prompt.samples) for prompt in self.prompts)

    @property
    def has_signal(self) -> bool:
        """Some sample's advantage is not zero, or a teacher's are by token."""
        samples = (sample for prompt in self.prompts for sample in prompt.samples)
        return any(self.is_taught or sample.advantage for sample in samples)


def credit(
    group: pb.Group,
    advantages: Sequence[float],
    temperature: float,
    *,
    drop_truncated: bool = False,
) -> CreditedGroup:
    """Attach ``advantages`` (index order) to the completions, gathered by prompt.

    With ``drop_truncated``, truncated completions are left out; their rewards still count
    in the advantages of the others. A baseline is never a sample.
    """
    by_digest: dict[str, list[Sample]] = {prompt.digest: [] for prompt in group.prompts}
    filtered, num_tokens = 0, 0
    for index, (candidate, advantage) in enumerate(zip(group.candidates, advantages, strict=True)):
        if candidate.is_baseline:
            continue
        if drop_truncated and candidate.finish_reason == pb.FINISH_REASON_LENGTH:
            filtered += 1
            continue
        sample = replace(
            sample_of(candidate),
            index=index,
            token_ids=np.array(candidate.token_ids, dtype=np.int32),
            rollout_logprobs=np.array(candidate.rollout_logprobs, dtype=np.float32),
            teacher_logprobs=np.array(candidate.teacher_logprobs, dtype=np.float32),
            advantage=advantage,
            temperature=temperature,
        )
        by_digest[candidate.prompt_digest].append(sample)
        num_tokens += len(candidate.token_ids)
    images = images_from_proto(group.images, num_prompts=len(group.prompts))
    prompts = [
        PromptSamples(
            np.array(prompt.token_ids, dtype=np.int32),
            by_digest[prompt.digest],
            [images[image.digest] for image in prompt.images],
        )
        for prompt in group.prompts
        if by_digest[prompt.digest]
    ]
    return CreditedGroup(group, advantages, prompts, num_tokens, filtered)
