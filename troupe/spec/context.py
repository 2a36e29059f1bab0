"""Whether completions fit into a model's context, where the model is a folder of this machine."""

import json
from pathlib import Path
from typing import Any

from troupe.spec.issues import Issue
from troupe.spec.job import JobSpec


def context_length(folder: Path) -> int | None:
    """Positions that the engines serve of the model in ``folder``, or None where it is not said.

    That is `max_position_embeddings`; a RoPE scaling beyond it is not served.
    """
    try:
        config: Any = json.loads((folder / "config.json").read_text("utf-8"))
        language = config.get("text_config", config)  # of a model that takes images
        positions = language.get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return positions if isinstance(positions, int) and positions > 0 else None


def context_issues(spec: JobSpec) -> list[Issue]:
    """Agents whose `max_new_tokens` leave no room for a prompt in the context of a model.

    That is their policy's model, or its teacher.
    An engine cuts a completion to what the prompt leaves, so these would be cut off each time.
    """
    issues: list[Issue] = []
    for name, agent in spec.agents.items():
        limit = spec.longest_completion(name)
        pointer = spec.sampling_pointer(name, "max_new_tokens")
        if limit > spec.sampling_for(name).max_new_tokens:
            pointer = "/eval/sampling/max_new_tokens"
        for field, model in spec.policies[agent.policy].models().items():
            length = context_length(Path(model).expanduser())
            if length is None or limit < length:
                continue
            message = (
                f"agent '{name}' may write {limit} tokens and the context of its {field} '{model}' "
                f"has {length}, prompt and completion together; lower max_new_tokens by the "
                "prompt's length, or take a model with a longer context"
            )
            issues.append(Issue(pointer, message))
    return issues
