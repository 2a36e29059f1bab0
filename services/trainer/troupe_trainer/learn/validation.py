"""Decides which groups may be trained: pure checks of one record against the step's expectations.

Owns the reasons that refused groups are counted under. Never repairs a group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import prompt_digest
from troupe.vision.model import VisionModel
from troupe_trainer.learn.image_faults import image_fault

ROUNDING = 1e-3
"""A log probability above 0 by more than an engine's rounding is none."""
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Expected:
    """The values that every group of a step must match. ``vision``: how its policy takes images;
    ``min_candidates``: the fewest that its algorithm learns from; ``is_scored``: rollout replicas
    serve its teacher, whose log probabilities come with each candidate."""

    job_id: str
    policy: str
    step: int
    policy_version: int
    vocabulary_size: int
    max_staleness: int = 0
    vision: VisionModel | None = None
    min_candidates: int = 2
    is_scored: bool = False


def fault(group: pb.Group, expected: Expected) -> str | None:
    """The reason why ``group`` must not be trained, or None.

    Example: ``fault(group_with_two_prompts, expected) == "mixed_prompts"``.
    """
    if (group.job_id, group.policy, group.step) != (
        expected.job_id,
        expected.policy,
        expected.step,
    ):
        return "foreign"
    # Where a lead's returns are compared, an agent may have been called once.
    num_sampled = sum(not candidate.is_baseline for candidate in group.candidates)
    if num_sampled < (1 if group.lead_returns else expected.min_candidates):
        return "too_few_candidates"
    return (
        _prompt_fault(group, expected)
        or _candidates_fault(group, expected)
        or image_fault(group, expected.vision)
    )


def oldest_version(group: pb.Group) -> int:
    """The oldest version that sampled a token of ``group``."""
    candidates = {c.policy_version for c in group.candidates}
    spans = {span.policy_version for c in group.candidates for span in c.version_spans}
    return min({group.policy_version} | candidates | spans)


def _prompt_fault(group: pb.Group, expected: Expected) -> str | None:
    if group.key == pb.GROUP_KEY_UNSPECIFIED:
        return "no_group_key"
    prompt_digests = {prompt.digest for prompt in group.prompts}
    candidate_digests = {candidate.prompt_digest for candidate in group.candidates}
    is_one = group.key == pb.GROUP_KEY_OBSERVATION
    if (
        (is_one and len(group.prompts) != 1)
        or candidate_digests - prompt_digests
        or len(prompt_digests) != len(group.prompts)
    ):
        return "mixed_prompts"
    for prompt in group.prompts:
        if not prompt.token_ids:
            return "empty_prompt"
        images = [image.digest for image in prompt.images]
        if prompt_digest(prompt.token_ids, images) != prompt.digest:
            return "prompt_digest"
        if _has_unknown(prompt.token_ids, expected):
            return "unknown_token"
    return None


def _has_unknown(token_ids: Sequence[int], expected: Expected) -> bool:
    """Whether an id is outside the vocabulary; numpy reads the record's numbers where they are."""
    return bool(np.array(token_ids).max() >= expected.vocabulary_size)


def _candidates_fault(group: pb.Group, expected: Expected) -> str | None:
    newest = expected.policy_version
    versions = {group.policy_version, *(c.policy_version for c in group.candidates)}
    if max(versions) > newest or oldest_version(group) < newest - expected.max_staleness:
        return "stale_version"
    if not all(map(_is_learnable, group.lead_returns)):
        return "non_finite_reward"
    for candidate in group.candidates:
        if group.lead_returns and candidate.trajectory >= len(group.lead_returns):
            return "unknown_trajectory"
        if not candidate.token_ids:
            return "empty_completion"
        if _has_unknown(candidate.token_ids, expected):
            return "unknown_token"
        if not all(map(_is_learnable, (candidate.reward, *candidate.terms.values()))):
            return "non_finite_reward"
        logprobs = np.array(candidate.rollout_logprobs)
        if len(logprobs) != len(candidate.token_ids) or not np.isfinite(logprobs).all():
            return "bad_logprobs"
        if logprobs.max() > ROUNDING:
            return "bad_logprobs"
        needs_scores = expected.is_scored and not candidate.is_baseline
        if needs_scores and (reason := _score_fault(candidate)):
            return reason
    return None


def _is_learnable(reward: float) -> bool:
    """Whether tensors can hold ``reward``; a larger one overflows when it is squared."""
    return abs(reward) <= _LARGEST


def _score_fault(candidate: pb.Candidate) -> str | None:
    if not candidate.teacher_logprobs:
        return "no_teacher_logprobs"
    scored = np.array(candidate.teacher_logprobs)
    is_sound = len(scored) == len(candidate.token_ids) and np.isfinite(scored).all()
    return None if is_sound and scored.max() <= ROUNDING else "bad_teacher_logprobs"
