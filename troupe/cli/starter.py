"""Makes a small first job spec for any task family. Reads the family and the model's folder, and
writes nothing.

Owns what a beginner's spec holds; ``troupe init`` and the page's form begin with it.
"""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from troupe.errors import InvalidArgumentError
from troupe.spec.context import context_length
from troupe.tasks.registry import load_family
from troupe.tasks.usual import usual_workflow

MODEL = "Qwen/Qwen3-0.6B"
"""Small, open, and good at following a format."""


def starter_spec(
    task: str,
    *,
    name: str = "",
    model: str = MODEL,
    params: dict[str, Any] | None = None,
    sharing: str = "shared",
    steps: int = 40,
    is_small: bool = False,
) -> dict[str, Any]:
    """A spec for ``task``: ``sharing`` "shared" trains one policy, "each" one for each agent.

    ``is_small`` is for a machine without an accelerator. Raises InvalidArgumentError for a task
    that does not exist, or that needs ``params``.
    """
    family = load_family(task, dict(params or {}))
    agents = list(family.agents)
    if not agents:
        raise InvalidArgumentError(
            f"the task '{task}' has no agents before its params are given; begin with an example "
            "of docs/adapters.md",
            pointer="/task/params",
        )
    workflow = usual_workflow(family).model_dump(exclude_unset=True)
    agents = list(dict.fromkeys(workflow["order"]))
    names = dict.fromkeys(agents, "shared")
    if sharing == "each":
        names = {agent: agent for agent in agents}
    limit, context = 128 if is_small else 512, context_length(Path(model).expanduser())
    if context is not None:  # half of it for the prompt
        limit = min(limit, context // 2)
    rank, rate = (16, 2e-4) if is_small else (32, 1e-5)
    policy = {
        "model": model,
        **({} if is_small else {"dtype": "bfloat16"}),
        "train": {"kind": "lora", "rank": rank, "alpha": 2.0 * rank},
        "optimizer": {"learning_rate": rate},
    }
    return {
        "name": name or _job_name(task),
        "seed": 0,
        "steps": steps,
        "tasks_per_step": 16 if is_small else 32,
        "task": {"name": task, "params": dict(params or {})},
        "workflow": workflow,
        "agents": {agent: {"policy": names[agent]} for agent in agents},
        "policies": {
            policy_name: deepcopy(policy) for policy_name in dict.fromkeys(names.values())
        },
        "algorithm": {"kind": "at_grpo", "group_size": 4 if is_small else 8},
        "sampling": {"max_new_tokens": limit},
        "eval": {"num_tasks": 50 if is_small else 200, "every": 10},
    }


def _job_name(task: str) -> str:
    """A job name made from the task's: ``my-tasks-wordchain`` for ``my.tasks:WordChain``."""
    return re.sub(r"[^a-z0-9_]+", "-", task.lower()).strip("-_")[:40].rstrip("-_")
