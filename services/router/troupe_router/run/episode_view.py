"""One recorded episode as REST shows it: its row, its tree, and the credit of each candidate."""

from pathlib import Path
from typing import Any

from troupe.clients.rest.models.episode_tree import EpisodeDocument
from troupe.episodes.build import JobParts
from troupe.spec import JobSpec
from troupe_router.jobs.allowlist import Allowlist
from troupe_router.jobs.checks import parts_to_show
from troupe_router.run.episode_pages import find_episode, lines_of_step, twins
from troupe_router.run.episode_tree import (
    Credit,
    episode_task,
    episode_turns,
    is_step_wide,
    step_advantages,
    trained_credits,
)
from troupe_router.run.trained_groups import trained_advantages

_MAX_STEP_EPISODES = 256
"""A step-wide advantage needs every episode of the step; larger steps are shown without."""


def episode_document(
    run_dir: Path, spec: JobSpec, short: str, allowed: Allowlist
) -> EpisodeDocument:
    """The whole tree of one episode; raises NotFoundError.

    Without the code that the spec names, as far as it is ``allowed`` and there, nothing that needs
    it is shown: terms of rewards, and advantages that the trainer has not recorded.
    """
    row, line = find_episode(run_dir, short)
    parts = parts_to_show(spec, allowed)
    return EpisodeDocument(
        **dict(row),
        task=episode_task(line, spec),
        turns=episode_turns(line, spec, parts, _credits(run_dir, line, spec, parts)),
        others=twins(run_dir, line["task_id"], short),
    )


def _credits(
    run_dir: Path, line: dict[str, Any], spec: JobSpec, parts: JobParts | None
) -> dict[str, Credit]:
    """The credits that the trainer recorded; computed from rewards where it has not."""
    if line["kind"] != "train":
        return {}
    trained = trained_advantages(run_dir, spec, line["step"])
    credits_by_group = {} if trained is None else trained_credits(line, spec, trained)
    if parts is None or len(credits_by_group) == len(line.get("groups") or []):
        return credits_by_group
    computed = _advantages(run_dir, line, parts)
    return {name: Credit(values, "rewards") for name, values in computed.items()} | credits_by_group


def _advantages(run_dir: Path, line: dict[str, Any], parts: JobParts) -> dict[str, list[float]]:
    if not is_step_wide(parts):
        return step_advantages([line], parts)
    lines = lines_of_step(run_dir, line["step"], limit=_MAX_STEP_EPISODES + 1)
    if len(lines) != parts.spec.tasks_per_step or len(lines) > _MAX_STEP_EPISODES:
        return {}
    return step_advantages(lines, parts)
