"""Digests for comparing two runs: every field that a step returns, as text."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from troupe.tasks.family import Observation, Task, Transition

FIELDS = ("state", "team_reward", "local_rewards", "done", "success", "info")


def fields_of(transition: Transition) -> dict[str, str]:
    """Each field as a short text; equal texts mean equal fields."""
    return {
        "state": short(transition.state),
        "team_reward": repr(transition.team_reward),
        "local_rewards": repr(sorted(transition.local_rewards.items())),
        "done": repr(transition.done),
        "success": repr(transition.success),
        "info": short(_canonical(transition.info).encode("utf-8", "replace")),
    }


def of_messages(observation: Observation) -> str:
    """A text that is equal for equal observations."""
    return short(repr([(message.role, message.content) for message in observation]).encode())


def of_task(task: Task) -> str:
    """A text that is equal for equal tasks."""
    return f"{task.id} {task.split} {task.index} {short(task.payload)}"


def short(data: bytes) -> str:
    """A digest and the size."""
    return f"{hashlib.sha256(data).hexdigest()[:16]} ({len(data)} bytes)"


def difference(first: Mapping[str, str], second: Mapping[str, str]) -> str | None:
    """The first field that differs, with both values, or None."""
    for name in (*first, *second):
        if first.get(name) != second.get(name):
            return f"{name}: {first.get(name)} against {second.get(name)}"
    return None


def _canonical(info: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(info), sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return "not serialisable"
