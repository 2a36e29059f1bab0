"""What an evaluation plays: tasks, samples, seeds and settings, independent of the policies.

Pure. An evaluation's samples are tickets of evaluation rounds, as in a job; sample ``s`` of each
task is round ``eval-s``, so sample 0 draws exactly what a job's first evaluation draws.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from troupe import __version__
from troupe.api.records.v1 import records_pb2 as pb
from troupe.ids import eval_round, ticket_id
from troupe.spec.base import SpecModel, is_empty
from troupe.spec.issues import SpecInvalidError, issues_of
from troupe.spec.job import (
    AgentSpec,
    EvalSpec,
    JobSpec,
    LimitsSpec,
    SamplingSpec,
    TaskSpec,
    WorkflowSpec,
)
from troupe.spec.policy import PolicySpec
from troupe.tasks.family import Split

JOB = "eval"
_EXTENSIBLE = {"num_tasks", "num_samples", "limits"}
"""Fields that may differ when an evaluation is resumed: played samples stay valid."""


class SampleKey(NamedTuple):
    """One play: task ``task_index`` of the split, ``sample`` counted from 0."""

    task_index: int
    sample: int


class EvalPlan(SpecModel):
    """What every policy of an evaluation plays.

    Example: ``EvalPlan(task=TaskSpec(name="t"), workflow=WorkflowSpec(order=["planner"]))``.
    """

    task: TaskSpec
    """The task family and its parameters."""
    task_code: str = Field(default="", exclude_if=is_empty)
    """Digest of the task's own file, where it is ``file.py:Class``."""
    workflow: WorkflowSpec
    """Who acts when; its ``order`` is the team."""
    split: Split = "test"
    """Split that the tasks come from."""
    first_task: int = Field(default=0, ge=0, lt=2**63)
    """Index of the first task."""
    num_tasks: int = Field(default=200, ge=1, le=1_000_000)
    """Tasks, from ``first_task`` on."""
    num_samples: int = Field(default=1, ge=1, le=10_000)
    """Independent plays of each task."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """All randomness derives from it."""
    sampling: SamplingSpec = SamplingSpec()
    """How models sample; scripted policies ignore it."""
    limits: LimitsSpec = LimitsSpec()
    """Deadlines, attempts and episodes in flight."""

    @property
    def digest(self) -> str:
        """Equal for evaluations that are comparable sample by sample."""
        text = json.dumps(self.fixed(), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def fixed(self) -> dict[str, Any]:
        """Settings that may not change when an evaluation is resumed."""
        return {
            **self.model_dump(mode="json", exclude=_EXTENSIBLE),
            "troupe_version": __version__,
        }

    def samples(self) -> Iterator[SampleKey]:
        """Every sample: all tasks once, then again; an interrupted run has whole samples first."""
        for sample in range(self.num_samples):
            for index in range(self.first_task, self.first_task + self.num_tasks):
                yield SampleKey(index, sample)

    def ticket(self, key: SampleKey) -> pb.Ticket:
        """The ticket of one sample, as a job's conductor writes it."""
        round_id = eval_round(key.sample)
        return pb.Ticket(
            ticket_id=ticket_id(JOB, round_id, key.task_index),
            job_id=JOB,
            round_id=round_id,
            kind=pb.ROUND_KIND_EVAL,
            split=self.split,
            task_index=key.task_index,
            policy_versions=dict.fromkeys(self.workflow.order, 0),
        )

    def job_spec(self, models: Mapping[str, str] | None = None) -> JobSpec:
        """The job without steps for the episode player; each agent is its own policy.

        ``models`` describes the policy of each agent; default: the family's own player. Raises
        SpecInvalidError where no job can be so.
        """
        models = models or dict.fromkeys(self.workflow.order, "scripted")
        try:
            return JobSpec(
                name=JOB,
                seed=self.seed,
                steps=0,
                task=self.task,
                workflow=self.workflow,
                agents={agent: AgentSpec(policy=agent) for agent in self.workflow.order},
                policies={agent: PolicySpec(model=models[agent]) for agent in self.workflow.order},
                sampling=SamplingSpec(max_new_tokens=self.sampling.max_new_tokens),
                eval=EvalSpec(num_tasks=self.num_tasks, sampling=self.sampling),
                limits=self.limits,
            )
        except ValidationError as error:
            raise SpecInvalidError(issues_of(error, JobSpec), source="evaluation") from error
