"""Whether a job asks of models that take images what they can't, where their folders are here."""

import json
from pathlib import Path
from typing import Any

from troupe.spec.issues import Issue
from troupe.spec.job import JobSpec


def takes_images(model: str) -> bool | None:
    """Whether the model in a folder of this machine takes images; None where none is there."""
    try:
        config: Any = json.loads((Path(model).expanduser() / "config.json").read_text("utf-8"))
        return "vision_config" in config
    except (OSError, ValueError, TypeError):
        return None


def vision_issues(spec: JobSpec) -> list[Issue]:
    """Images that no model takes, critics and teachers beside models that take them, towers that
    are not there."""
    issues: list[Issue] = []
    if spec.task.params.get("observe") == "image" and all(
        takes_images(policy.model) is False for policy in spec.policies.values()
    ):
        message = (
            "the task shows images, and no policy's model takes any; name a vision-language model "
            "(troupe model tiny --vision makes a small one), or leave 'observe' out"
        )
        issues.append(Issue("/task/params/observe", message))
    for name, policy in spec.policies.items():
        sees = takes_images(policy.model)
        if policy.train.vision and sees is False:
            message = f"the model '{policy.model}' takes no images; leave it out"
            issues.append(Issue(f"/policies/{name}/train/vision", message))
        if spec.algorithm.demonstrations is not None and sees and spec.trains(name):
            issues.append(Issue("/algorithm/demonstrations", demonstrations_refusal(name)))
        if spec.algorithm.critic is not None and sees:
            issues.append(Issue("/algorithm/critic", critic_refusal(name)))
        if policy.teacher is not None and (sees or takes_images(policy.teacher)):
            message = teacher_refusal(policy.model if sees else policy.teacher)
            issues.append(Issue(f"/policies/{name}/teacher", message))
    return issues


def critic_refusal(policy: str) -> str:
    """Why a job with a critic must not train ``policy``, whose model takes images."""
    return (
        f"a critic reads text alone, and the model of policy '{policy}' takes images; use an "
        "algorithm without a critic, such as at_grpo or gagpo"
    )


def demonstrations_refusal(policy: str) -> str:
    """Why ``policy``, whose model takes images, can't be shown demonstrations."""
    return (
        f"demonstrations are of text alone, and the model of policy '{policy}' takes images; leave "
        "them out, or use a language model"
    )


def teacher_refusal(model: str) -> str:
    """Why neither a teacher nor its policy may be ``model``, which takes images."""
    return (
        f"a teacher reads text alone, and the model '{model}' takes images; use language models "
        "for policy and teacher"
    )
