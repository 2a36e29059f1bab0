"""The answer to a dry run: what a job would start and what a step would cost."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from troupe.clients.rest.models.jobs import PlanDocument
from troupe.episodes.build import JobParts
from troupe.samplers.cost import draws_per_act
from troupe.spec.job import JobSpec
from troupe.spec.layout import plan_layout, seats
from troupe.spec.pools import num_replicas, rollout_pools
from troupe_router.jobs.estimate import Pace, estimate
from troupe_router.jobs.processes import components
from troupe_router.settings import RouterSettings


def plan(
    parts: JobParts, settings: RouterSettings, *, in_use: int = 0, pace: Pace | None = None
) -> PlanDocument:
    """The resolved spec, the processes, and bounds on the work.

    ``in_use`` are the replicas of jobs at work; ``pace`` is that of an earlier job of this kind.
    """
    spec = parts.spec
    sampler = parts.algorithm.sampler()
    draws = draws_per_act(sampler, spec)
    acts = spec.tasks_per_step * spec.workflow.max_turns
    tokens = {name: acts * draws * spec.sampling_for(name).max_new_tokens for name in spec.agents}
    agents = {
        name: {
            "policy": agent.policy,
            "candidates_at_most": acts * draws,
            "tokens_at_most": tokens[name],
        }
        for name, agent in spec.agents.items()
    }
    processes = components("dry-run", spec, settings, router=settings.grpc_address)
    replicas = num_replicas(spec)
    limit = settings.max_replicas
    evals = spec.eval_steps()
    return PlanDocument(
        dry_run=True,
        spec=spec.model_dump(mode="json"),
        launcher=settings.launcher,
        processes=[
            {"name": c.name, "module": c.module} for c in processes if settings.launcher == "local"
        ],
        replicas=replicas,
        pools=[asdict(pool) for pool in rollout_pools(spec)],
        quota={
            "max_replicas": limit or None,
            "in_use": in_use,
            "fits": not limit or in_use + replicas <= limit,
        },
        step={
            "tickets": spec.tasks_per_step,
            "candidates_per_draw": sampler.num_candidates,
            "trajectories_per_ticket": sampler.num_trajectories,
            "agents": agents,
            "candidates_at_most": acts * draws * len(agents),
            "tokens_at_most": sum(tokens.values()),
        },
        eval={"tickets": spec.eval.num_tasks, "steps": evals} if evals else None,
        estimate=estimate(spec, draws=draws, num_evals=len(evals), pace=pace),
        checks=_checks(spec, settings),
    )


def _checks(spec: JobSpec, settings: RouterSettings) -> list[dict[str, Any]]:
    """What was looked at, by name: all of it holds, or there would be no plan."""
    looked_at = [
        ("spec", "task, agents, rewards and names agree"),
        *(
            (f"{field} of {name}", _model(model))
            for name, policy in spec.policies.items()
            for field, model in policy.models().items()
        ),
        ("trainer", _trainer(spec.trainer.gpus or settings.trainer_gpus)),
        *_layout(spec, settings),
        ("run folder", str(settings.runs_dir.absolute())),
    ]
    return [{"name": name, "ok": True, "detail": detail} for name, detail in looked_at]


def _layout(spec: JobSpec, settings: RouterSettings) -> list[tuple[str, str]]:
    """Who sits on which GPU, where this installation says which there are."""
    if not settings.gpus:
        return []
    layout = plan_layout(spec, settings.gpus, settings.gpu_gb, max_replicas=num_replicas(spec))
    return [("layout", "; ".join([*seats(layout), layout.why]))]


def _model(model: str) -> str:
    return model if Path(model).is_dir() else f"{model} (hub id, not looked up)"


def _trainer(gpus: int) -> str:
    if gpus > 1:
        return f"{gpus} ranks for each trainer: one on each GPU, or processes where there is none"
    return "one rank for each trainer, unless TROUPE_TRAINER_RANKS says more"
