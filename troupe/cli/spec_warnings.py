"""What `troupe validate` warns of: a job would be accepted, and may not do what was meant."""

from troupe.cli.specs import missing_demonstrations, missing_models
from troupe.episodes.build import JobParts
from troupe.errors import TroupeError


def spec_warnings(parts: JobParts) -> list[str]:
    """All of them, each with the pointer that it is about."""
    missing = [*missing_models(parts.spec), *missing_demonstrations(parts.spec)]
    found = [_repeats(parts), _waiting(parts), few_turns(parts)]
    return [*filter(None, found), *(f"{issue.pointer}: {issue.message}" for issue in missing)]


def few_turns(parts: JobParts) -> str:
    """Where the workflow ends a training episode before the task can; else empty."""
    needed: int = getattr(parts.family, "needed_turns", 0)
    limit = parts.spec.workflow.max_turns
    if not parts.spec.steps or limit >= needed:
        return ""
    return (
        f"/workflow/max_turns: an episode of this task takes {needed} turns with these "
        f"task.params, and is cut off after {limit}, so what is paid at its end never is. Raise it "
        f"to {needed}, or change task.params"
    )


def _repeats(parts: JobParts) -> str:
    """Where each step plays tasks more than once, or that nobody here can tell."""
    count = parts.spec.tasks_per_step
    try:
        size = parts.family.taskset().size("train")
    except (TroupeError, OSError) as error:
        return f"/task: its tasks can't be opened here: {error}"
    if not parts.spec.steps or size is None or count <= size:
        return ""
    return (
        f"/tasks_per_step: the train split has {size} tasks, so each step of {count} "
        "plays some of them more than once; give fewer, or more tasks"
    )


def _waiting(parts: JobParts) -> str:
    """Where the workflow ends an episode whose run, which nobody tells, waits for an answer."""
    family, limit = parts.family, parts.spec.workflow.max_turns
    num_calls = getattr(family, "usual_workflow", {}).get("max_turns", limit)
    if getattr(family, "is_repeatable", True) or limit >= num_calls:
        return ""
    return (
        f"/workflow/max_turns: an agent's turn {limit} may end an episode while its "
        f"run, of up to {num_calls} calls (task.params.max_calls), waits for an answer: with "
        "replay: never it then holds its place (max_live) until answer_s is over. Raise it to "
        f"{num_calls}, or lower max_calls to {limit}"
    )
