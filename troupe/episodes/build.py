"""Builds a job's episode player: the one place where a spec's names become objects."""

from dataclasses import dataclass
from functools import cache, partial

from troupe.algorithms.algorithm import (
    Algorithm,
    Remembering,
    advantages_of_group,
    credits_by_ticket,
)
from troupe.algorithms.load import load_algorithm
from troupe.bundles.planned import is_bundled, planned_family
from troupe.episodes.coalitions import check_coalitions
from troupe.episodes.follow import resumable
from troupe.episodes.joint import at_once
from troupe.episodes.lead import check_lead
from troupe.episodes.player import EpisodePlayer
from troupe.episodes.ports import EnvPort, RolloutPort, TeacherPort
from troupe.episodes.terms import check_terms
from troupe.rewards.family import with_reward
from troupe.rewards.mix import RewardMix
from troupe.samplers.coalition import CoalitionSampler
from troupe.samplers.follow import FollowSampler
from troupe.samplers.forest import ForestSampler
from troupe.samplers.joint import JointSampler
from troupe.samplers.led import LedSampler
from troupe.samplers.parallel import ParallelSampler
from troupe.samplers.sampler import Sampler
from troupe.spec.issues import Issue, SpecInvalidError, suggest
from troupe.spec.job import JobSpec
from troupe.spec.layout import GpuLayout, plan_layout
from troupe.tasks.family import TaskFamily
from troupe.tasks.registry import load_family
from troupe.workflows.load import load_workflow
from troupe.workflows.workflow import Workflow


@dataclass(frozen=True, slots=True)
class JobParts:
    """The objects that a spec names, loaded and checked against each other."""

    spec: JobSpec
    family: TaskFamily
    workflow: Workflow
    algorithm: Algorithm
    mix: RewardMix

    def player(
        self, rollout: RolloutPort, env: EnvPort, teacher: TeacherPort | None = None
    ) -> EpisodePlayer:
        """A player of this job's tickets; without ``teacher`` none scores what is sampled.

        Rewards by turn do not tell what an act is worth: the algorithm says what is redrawn.
        """
        algorithm, sampler = self.algorithm, self.algorithm.sampler()
        is_asked = credits_by_ticket(algorithm, self.spec.algorithm)
        by_turn = sampler.grouping in ("turns", "acts")
        return EpisodePlayer(
            self.spec,
            workflow=self.workflow,
            sampler=sampler,
            mix=self.mix,
            rollout=rollout,
            env=env,
            num_tasks=cache(lambda split: self.family.taskset().size(split)),
            with_terms=algorithm.needs.terms,
            teacher=teacher,
            advantages=partial(advantages_of_group, algorithm) if by_turn and is_asked else None,
            team_writes_prompts=getattr(self.family, "team_writes_prompts", False),
        )


def load_parts(spec: JobSpec, family: TaskFamily | None = None) -> JobParts:
    """Everything that ``spec`` names; raises SpecInvalidError or InvalidArgumentError.

    ``family`` is the spec's task family, if already loaded. Code of a bundle is not loaded: the
    parts of such a job can be planned and played with, and judge nothing.
    """
    loaded = family or _family(spec)
    family = with_reward(loaded, spec.reward, is_bundled=spec.bundle is not None)
    issues = [
        Issue(f"/agents/{name}", f"task '{spec.task.name}' has no agent '{name}'; {hint}")
        for name in spec.agents
        if name not in family.agents and (hint := suggest(name, family.agents))
    ]
    if issues:
        raise SpecInvalidError(issues)
    workflow, algorithm = load_workflow(spec.workflow), load_algorithm(spec.algorithm)
    sampler = algorithm.sampler()
    models = {policy.model for name, policy in spec.policies.items() if spec.trains(name)}
    critic = spec.algorithm.critic
    if algorithm.needs.values == "joint" and critic and not critic.model and len(models) > 1:
        message = "the policies have different models; name the one that the team's critic is"
        raise SpecInvalidError([Issue("/algorithm/critic/model", message)])
    if algorithm.needs.terms:
        check_terms(spec.algorithm.kind, sampler)
    if isinstance(sampler, JointSampler):
        at_once(spec, workflow, sampler)
    if isinstance(sampler, FollowSampler):
        resumable(spec, workflow, sampler)
    if isinstance(sampler, CoalitionSampler):
        check_coalitions(spec, sampler)
    if isinstance(sampler, LedSampler):
        check_lead(spec, sampler)
    if not getattr(loaded, "is_repeatable", True):
        refuse_repetition(spec, sampler)
    check_teachers(spec, algorithm)
    refuse_across_policies(spec, algorithm)
    refuse_what_cannot_spread(spec, algorithm, spec.trainer.gpus or 1)
    return JobParts(
        spec=spec,
        family=family,
        workflow=workflow,
        algorithm=algorithm,
        mix=RewardMix(spec.reward, family.local_terms),
    )


def _family(spec: JobSpec) -> TaskFamily:
    if is_bundled(spec, spec.task.name):
        return planned_family(spec)
    return load_family(spec.task.name, spec.task.params)


def check_teachers(spec: JobSpec, algorithm: Algorithm) -> None:
    """Raise SpecInvalidError unless exactly the policies that learn from a teacher name one."""
    issues: list[Issue] = []
    for name, policy in spec.policies.items():
        is_taught = algorithm.needs.teacher and spec.trains(name)
        if is_taught and policy.teacher is None:
            message = (
                f"'{spec.algorithm.kind}' learns from a teacher; name a model folder or hub id"
            )
        elif policy.teacher is not None and not algorithm.needs.teacher:
            message = (
                f"'{spec.algorithm.kind}' learns from no teacher; leave it out, or use distill"
            )
        elif policy.teacher is not None and not is_taught:
            message = f"policy '{name}' never learns; leave it out"
        else:
            continue
        issues.append(Issue(f"/policies/{name}/teacher", message))
    if issues:
        raise SpecInvalidError(issues)


def refuse_repetition(spec: JobSpec, sampler: Sampler) -> None:
    """Raise SpecInvalidError if the episodes of a task that runs once would share their acts."""
    is_whole = isinstance(sampler, ParallelSampler)
    if not is_whole or isinstance(sampler, ForestSampler | CoalitionSampler):
        message = (
            f"'{spec.algorithm.kind}' goes on from the middle of an episode more than once, and a "
            "run of this task is never repeated (replay: never); use an algorithm over whole runs, "
            "such as grpo"
        )
        raise SpecInvalidError([Issue("/algorithm/kind", message)])


def refuse_across_policies(spec: JobSpec, algorithm: Algorithm) -> None:
    """Raise SpecInvalidError if policies have separate trainers but the algorithm needs them all.

    A single policy always passes.
    """
    if not spec.trainer.per_policy or len(spec.policies) == 1:
        return
    needs = algorithm.needs
    why = ""
    if needs.team:
        why = "takes the advantages of all policies together"
    elif needs.values == "joint":
        why = "has one critic for the team"
    elif isinstance(algorithm, Remembering):
        why = "remembers from step to step, and what it remembers may be of all policies"
    if why:
        message = f"'{spec.algorithm.kind}' {why}, which needs one trainer; set it to false"
        raise SpecInvalidError([Issue("/trainer/per_policy", message)])


def layout_of(
    parts: JobParts,
    gpus: int,
    gpu_gb: float,
    *,
    max_replicas: int | None = None,
    max_ranks: int | None = None,
) -> GpuLayout:
    """``plan_layout`` of a loaded job: its algorithm says whether a trainer can have ranks."""
    can_spread = True
    try:
        refuse_what_cannot_spread(parts.spec, parts.algorithm, 2)
    except SpecInvalidError:
        can_spread = False
    return plan_layout(
        parts.spec,
        gpus,
        gpu_gb,
        can_spread=can_spread,
        max_replicas=max_replicas,
        max_ranks=max_ranks,
    )


def refuse_what_cannot_spread(spec: JobSpec, algorithm: Algorithm, num_ranks: int) -> None:
    """Raise SpecInvalidError for what only a trainer of one rank can do, or of several."""
    if num_ranks == 1:
        if spec.trainer.offload:
            why = "the weights of one rank are not offloaded; set /trainer/gpus, or leave this out"
            raise SpecInvalidError([Issue("/trainer/offload", why)])
        return
    issues: list[Issue] = []

    def refuse(pointer: str, why: str, otherwise: str = "") -> None:
        remedy = f"set /trainer/gpus to 1{otherwise}"
        issues.append(Issue(pointer, f"{why}, and this trainer has {num_ranks} ranks; {remedy}"))

    if algorithm.needs.values is not None:
        refuse("/algorithm/kind", f"'{spec.algorithm.kind}' has a critic, which is on one rank")
    if spec.batch.overlap:
        why = "gradients are summed while the round is played on one rank only"
        refuse("/batch/overlap", why, ", or leave this out")
    if spec.batch.gradient_sums == "exact":
        why = "exact sums let tickets be learnt from in any order, which is on one rank only"
        refuse("/batch/gradient_sums", why, ", or leave this out")
    for name, policy in spec.policies.items():
        if policy.train.vision:
            why = f"'{name}' trains its vision tower, and only ranks with images have its gradient"
            refuse(f"/policies/{name}/train/vision", why, ", or this to false")
        if policy.past is not None and policy.past.every:
            pointer = f"/policies/{name}/past/every"
            why = f"policy '{name}' takes over weights, which needs one rank"
            refuse(pointer, why, ", or this to 0")
    if issues:
        raise SpecInvalidError(issues)
