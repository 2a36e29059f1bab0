"""Bounds on a job's cost, and its expected duration where an earlier job gives a pace.

Owns the arithmetic of a dry run's estimate. Never invents times: without a pace there are none.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from troupe.spec import JobSpec
from troupe.spec.pools import num_replicas
from troupe_router.jobs.record import JobRecord

_LOOKED_AT = 50
"""Newest jobs whose summaries are read."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an earlier job of the same task, models and size was."""

    job_id: str
    step_s: float
    tokens_per_step: float


def find_pace(spec: JobSpec, jobs: Sequence[JobRecord]) -> Pace | None:
    """The newest ended job like ``spec`` that has a summary, or None."""
    like = [job for job in jobs if job.state == "succeeded" and _kind(job.spec) == _kind(spec)]
    for job in sorted(like, key=lambda job: -job.created_at)[:_LOOKED_AT]:
        try:
            summary = json.loads((job.run_dir / "summary.json").read_text("utf-8"))
            steps = int(summary["steps"])
            if steps > 0:
                tokens = float(summary.get("tokens") or 0) / steps
                # Steps that are played ahead overlap, and take no longer together than the job.
                wall_s = min(float(summary["steps_wall_s"]), float(summary["wall_s"]))
                return Pace(job.job_id, wall_s / steps, tokens)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def estimate(spec: JobSpec, *, draws: int, num_evals: int, pace: Pace | None) -> dict[str, Any]:
    """Bounds on tokens and environment steps, and times at ``pace``.

    ``draws`` is the number of candidates drawn at each action of a training episode.
    """
    turns = spec.workflow.max_turns
    acts = spec.tasks_per_step * turns
    train = sum(acts * draws * spec.sampling_for(a).max_new_tokens for a in spec.agents)
    evaluation = sum(
        spec.eval.num_tasks * turns * spec.sampling_for(a, evaluate=True).max_new_tokens
        for a in spec.agents
    )
    replicas = num_replicas(spec)
    train_tokens, eval_tokens = train * spec.steps, evaluation * num_evals
    env_steps = acts * draws * len(spec.agents) * spec.steps
    env_steps += spec.eval.num_tasks * turns * len(spec.agents) * num_evals
    wall_s = pace.step_s * spec.steps if pace else None
    return {
        "train_tokens_at_most": train_tokens,
        "eval_tokens_at_most": eval_tokens,
        "tokens_at_most": train_tokens + eval_tokens,
        "env_steps_at_most": env_steps,
        "based_on": {
            "job_id": pace.job_id,
            "step_s": round(pace.step_s, 3),
            "tokens_per_step": round(pace.tokens_per_step),
        }
        if pace
        else None,
        "train_wall_s": round(wall_s, 1) if wall_s is not None else None,
        "replica_hours": round(wall_s * replicas / 3600, 3) if wall_s is not None else None,
    }


def _kind(spec: JobSpec) -> str:
    """What a step's time depends on."""
    fields = {"task", "workflow", "agents", "policies", "tasks_per_step", "sampling", "trainer"}
    fields |= {"algorithm", "max_staleness"}
    document = spec.model_dump(mode="json", include=fields)
    return json.dumps(document, sort_keys=True)
