"""Builds the player of a job from its spec: the one place where a spec's names become objects."""

from dataclasses import dataclass

from troupe import plugins
from troupe.algorithms.contract import Algorithm
from troupe.episodes.player import EpisodePlayer
from troupe.episodes.ports import EnvPort, RolloutPort
from troupe.rewards.mix import RewardMix
from troupe.spec.issues import Issue, SpecInvalidError, suggest
from troupe.spec.job import JobSpec
from troupe.tasks.contract import TaskFamily
from troupe.tasks.registry import load_family
from troupe.workflows.contract import Workflow


@dataclass(frozen=True, slots=True)
class JobParts:
    """What a spec names, loaded and checked against each other."""

    spec: JobSpec
    family: TaskFamily
    workflow: Workflow
    algorithm: Algorithm
    mix: RewardMix

    def player(self, rollout: RolloutPort, env: EnvPort) -> EpisodePlayer:
        """A player of this job's tickets."""
        return EpisodePlayer(
            self.spec,
            workflow=self.workflow,
            sampler=self.algorithm.sampler(),
            mix=self.mix,
            rollout=rollout,
            env=env,
        )


def load_parts(spec: JobSpec) -> JobParts:
    """Everything that ``spec`` names; raises SpecInvalidError or InvalidArgumentError."""
    family = load_family(spec.task.name, spec.task.params)
    issues = [
        Issue(f"/agents/{name}", f"task '{spec.task.name}' has no agent '{name}'; {hint}")
        for name in spec.agents
        if name not in family.agents and (hint := suggest(name, family.agents))
    ]
    if issues:
        raise SpecInvalidError(issues)
    workflow = plugins.load(plugins.WORKFLOWS, spec.workflow.kind, pointer="/workflow/kind")
    algorithm = plugins.load(plugins.ALGORITHMS, spec.algorithm.kind, pointer="/algorithm/kind")
    return JobParts(
        spec=spec,
        family=family,
        workflow=workflow(spec.workflow),
        algorithm=algorithm(spec.algorithm),
        mix=RewardMix(spec.reward, family.local_terms),
    )
