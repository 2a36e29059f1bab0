"""A policy's frozen teacher: loading, and the check that it speaks of the policy's own tokens.

Owns the refusals, also of a teacher that rollout replicas serve. A teacher computes log
probabilities of the policy's tokens after the policy's own prompts; it never samples, renders a
prompt or learns.
"""

from collections.abc import Sequence

from transformers import AutoConfig

from troupe.algorithms.algorithm import Algorithm
from troupe.errors import InvalidArgumentError
from troupe.spec.job import JobSpec
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe.spec.vision import teacher_refusal
from troupe_trainer.learn.vocabulary import check_same_tokens
from troupe_trainer.model.kernels import AttentionChoice, choose
from troupe_trainer.model.model import PolicyModel
from troupe_trainer.model.vision import vision_model


def teacher_of(
    policy: str,
    spec: JobSpec,
    algorithm: Algorithm,
    *,
    device: str,
    attention: AttentionChoice = "auto",
    shares: Sequence[PolicyModel] = (),
    is_spread: bool = False,
) -> PolicyModel | None:
    """The teacher of ``policy``; None where the algorithm needs none, the policy never learns, or
    rollout replicas serve it: then it is checked here and not loaded."""
    if not (algorithm.needs.teacher and spec.trains(policy)):
        return None
    if spec.policies[policy].served_teacher() is not None:
        _check_tokens(policy, spec.policies[policy])
        _check_output(policy, spec.policies[policy])
        return None
    return load_teacher(
        policy,
        spec.policies[policy],
        device=device,
        attention=attention,
        shares=shares,
        is_spread=is_spread,
    )


def load_teacher(
    policy: str,
    spec: PolicySpec,
    *,
    device: str,
    attention: AttentionChoice = "auto",
    shares: Sequence[PolicyModel] = (),
    is_spread: bool = False,
) -> PolicyModel:
    """The frozen model ``spec.teacher``, in the number format of the policy.

    ``shares``: models whose frozen weights it reuses where they are the same. ``is_spread``: as
    `PolicyModel`.

    Raises:
        InvalidArgumentError: it can't be loaded, or does not fit the policy.
        JobFailedError: it does not fit into memory.
    """
    _check_tokens(policy, spec)
    assert spec.teacher is not None, "checked when the job was made"
    pointer = f"/policies/{policy}/teacher"
    frozen = PolicySpec(model=spec.teacher, dtype=spec.dtype, train=LoraSpec())
    try:
        teacher = PolicyModel(
            policy,
            frozen,
            seed=0,
            device=device,
            kernels=choose(frozen, device, attention),
            shares=shares,
            is_frozen=True,
            is_spread=is_spread,
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.message, pointer=pointer) from error
    return teacher


def _check_tokens(policy: str, spec: PolicySpec) -> None:
    """Raise InvalidArgumentError unless teacher and policy read text in the same tokens."""
    assert spec.teacher is not None, "checked when the job was made"
    pointer = f"/policies/{policy}/teacher"
    check_same_tokens(spec.model, policy, spec.teacher, role="teacher", pointer=pointer)
    for model in (spec.model, spec.teacher):
        if vision_model(model) is not None:
            raise InvalidArgumentError(teacher_refusal(model), pointer=pointer)


def _check_output(policy: str, spec: PolicySpec) -> None:
    """As `PolicyModel.keep_teacher`, by the configuration of a teacher that is not loaded."""
    models = spec.models()
    own, other = (
        AutoConfig.from_pretrained(models[field]).vocab_size for field in ("model", "teacher")
    )
    if other < own:
        raise InvalidArgumentError(
            f"The teacher of policy '{policy}' has an output of {other} tokens and the policy one "
            f"of {own}. Take a teacher with at least as many.",
            pointer=f"/policies/{policy}/teacher",
        )
