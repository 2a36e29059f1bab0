"""Models with experts (MoE), which are refused by name: neither memory nor ranks know them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from troupe.spec.issues import Issue
from troupe.spec.job import JobSpec

_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Where the configs of Qwen-MoE, Mixtral and gpt-oss, DeepSeek, and others have their number."""


def num_experts(config: Mapping[str, Any]) -> int:
    """Experts of a model by its config.json; 0 of a dense one."""
    language = config.get("text_config") or config  # of a model that takes images
    counts = [language.get(name) for name in _COUNTS]
    return max((count for count in counts if isinstance(count, int)), default=0)


def experts_refusal(model: str, kind: str, count: int) -> str:
    """Why no policy, critic or teacher may be ``model``."""
    return (
        f"the model '{model}' ({kind}) has {count} experts; mixtures of experts are refused, since "
        "there is no expert parallelism and their memory is not predicted. Take a dense model, "
        "such as Qwen3-8B"
    )


def experts_issues(spec: JobSpec) -> list[Issue]:
    """Models with experts, where their folders are on this machine."""
    issues: list[Issue] = []
    for pointer, model in spec.models().items():
        try:
            config: Any = json.loads((Path(model).expanduser() / "config.json").read_text("utf-8"))
            count, kind = num_experts(config), str(config.get("model_type", "no type"))
        except (OSError, ValueError, AttributeError):
            continue
        if count > 1:
            issues.append(Issue(pointer, experts_refusal(model, kind, count)))
    return issues
