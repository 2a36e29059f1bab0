"""Opens a team: its weights in one engine, and a model for each agent and for the team.

Owns their lifetime, and why a team cannot play where that is so. Never speaks HTTP.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from troupe import plugins
from troupe.episodes.local import EngineRollout, LocalEnv
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.evaluation.serving import serving_engine
from troupe.publishing.manifest import TeamManifest
from troupe.publishing.team_folder import PUBLISHED_CODE, TeamFolder
from troupe.rewards.mix import RewardMix
from troupe.runtime.engines.engine import Engine
from troupe.spec import load_spec
from troupe.spec.job import AgentSpec, JobSpec, LimitsSpec, RewardSpec, TaskSpec
from troupe.spec.policy import PolicySpec
from troupe.tasks.family import Task, TaskFamily, runs_programs
from troupe.tasks.optional import optional_method, request_task
from troupe.tasks.registry import load_family
from troupe.training.task import TASK_NAME, DatasetParams, DatasetTask
from troupe.workflows.load import load_workflow
from troupe.workflows.workflow import Workflow
from troupe_router.serve.models import AgentModel, RefusedTeam, ServedModel, TeamModel

_SAMPLES = ("1", "2")
"""Two requests that differ: what an agent is told in both is its instruction."""


@dataclass(frozen=True, slots=True)
class ServedTeam:
    """A loaded team: models by name, the team's own first."""

    engine: Engine
    models: Mapping[str, ServedModel]


@asynccontextmanager
async def opened_team(
    team: TeamFolder, engine_name: str, *, request_timeout_s: float
) -> AsyncGenerator[ServedTeam]:
    """Load the weights of ``team``; frees everything on exit.

    Raises InvalidArgumentError or NotFoundError for weights that the engine cannot serve.
    """
    manifest = team.manifest
    wanted = dict.fromkeys(agent.policy for agent in manifest.agents.values())
    refs = {name: team.ref(name) for name in wanted}
    dtypes = {ref: manifest.policies[name].dtype for name, ref in refs.items()}
    names = {ref: name for name, ref in refs.items()}
    async with serving_engine(names, engine_name, dtypes) as engine:
        players = {
            agent: EngineRollout(engine, entry.policy) for agent, entry in manifest.agents.items()
        }
        with _Play(team, request_timeout_s) as play:
            instructions = await play.instructions()
            agents: dict[str, ServedModel] = {
                name: AgentModel(
                    name, entry.policy, instructions[name], entry.sampling, players[name]
                )
                for name, entry in manifest.agents.items()
            }
            team_name = manifest.name if manifest.name not in agents else f"{manifest.name}-team"
            yield ServedTeam(engine, {team_name: play.model(team_name, players), **agents})


class _Play:
    """The team's task family in this process; ``refusal`` says why it cannot play requests."""

    def __init__(self, team: TeamFolder, request_timeout_s: float) -> None:
        self._manifest = team.manifest
        self._timeout_s = request_timeout_s
        self._task = _task_of(team)
        self._modules: tuple[str, ...] | None = None
        if team.is_published:  # rows are played by a task of ours, which no manifest names
            self._modules = () if team.manifest.task else (DatasetTask.__module__,)
        self._env: LocalEnv | None = None
        self._family: TaskFamily | None = None
        self._workflow: Workflow | None = None
        self._refusal = ""

    def __enter__(self) -> "_Play":
        try:
            with plugins.only_modules(self._modules, PUBLISHED_CODE):
                self._open()
        except Exception as error:  # a task's code may raise anything; its agents still serve
            self._refuse(error)
        return self

    def _refuse(self, error: Exception) -> None:
        raised = f"the task {self._task.name} raised {error!r} on a request"
        self._refusal = self._refusal or (
            error.message if isinstance(error, TroupeError) else raised
        )

    def _open(self) -> None:
        self._family = load_family(self._task.name, self._task.params)
        has_requests = optional_method(self._family, "request_task") is not None
        if has_requests or not runs_programs(self._family):
            self._env = LocalEnv(self._family)
        self._workflow = load_workflow(self._manifest.workflow)
        request_task(self._family, _SAMPLES[0])

    def __exit__(self, *_: object) -> None:
        if self._env is not None:
            self._env.close()

    async def instructions(self) -> dict[str, str]:
        """The system message of each agent: the manifest's, or what the task always tells it."""
        told = await self._told()
        return {
            name: agent.instruction or told.get(name, "")
            for name, agent in self._manifest.agents.items()
        }

    def model(self, name: str, players: Mapping[str, EngineRollout]) -> ServedModel:
        """The team, or the one that says why it is none."""
        manifest, family, workflow = self._manifest, self._family, self._workflow
        if self._refusal or family is None or workflow is None or self._env is None:
            return RefusedTeam(name, self._refusal, list(manifest.agents))
        return TeamModel(
            name,
            self._spec(),
            {agent: entry.sampling for agent, entry in manifest.agents.items()},
            family,
            workflow,
            RewardMix(RewardSpec(), family.local_terms),
            self._env,
            players,
        )

    def _spec(self) -> JobSpec:
        """A job without steps, as an evaluation has: each agent is its own policy."""
        agents = self._manifest.agents
        return JobSpec(
            name=self._manifest.name,
            steps=0,
            task=self._task,
            workflow=self._manifest.workflow,
            agents={name: AgentSpec(policy=name) for name in agents},
            policies={name: PolicySpec(model=agent.policy) for name, agent in agents.items()},
            limits=LimitsSpec(generate_timeout_s=self._timeout_s),
        )

    async def _told(self) -> dict[str, str]:
        """What each agent is told in two different tasks alike; nothing where there are none."""
        if self._env is None:
            return {}
        agents = list(self._manifest.agents)
        try:
            starts = [
                await self._env.begin(
                    lambda number=number: self._sample(number),
                    "a sample",
                    observe=agents,
                    timeout_s=self._timeout_s,
                )
                for number in range(len(_SAMPLES))
            ]
        except Exception as error:  # as above
            self._refuse(error)
            return {}
        first, second = (
            {
                name: shown[0].text
                for name, shown in start.observations.items()
                if shown and shown[0].role == "system"
            }
            for start in starts
        )
        return {name: text for name, text in first.items() if second.get(name) == text}

    def _sample(self, number: int) -> Task:
        assert self._family is not None
        if not self._refusal:
            return request_task(self._family, _SAMPLES[number])
        return self._family.taskset().task("test", number)


def _task_of(team: TeamFolder) -> TaskSpec:
    """The task of requests: without data, which is the training's."""
    manifest = team.manifest
    if manifest.task is None:
        return _row_task(manifest)
    task = manifest.task
    if not team.is_published:
        task = load_spec(team.folder / "spec.json").task  # the manifest cuts its paths
    params = {name: value for name, value in task.params.items() if name != "data"}
    return TaskSpec(name=task.name, params=params)


def _row_task(manifest: TeamManifest) -> TaskSpec:
    """The task of a team that learned from a caller's rows."""
    if manifest.rows is None:
        raise InvalidArgumentError(f"the team '{manifest.name}' names neither a task nor rows")
    trained = manifest.spec.get("task", {}).get("params", {})
    params = DatasetParams(
        socket="",
        agents={name: agent.instruction for name, agent in manifest.agents.items()},
        num_train=manifest.rows.num_train,
        num_held_out=manifest.rows.num_held_out,
        digest=manifest.rows.digest,
        max_turns=manifest.workflow.max_turns,
        has_observe=bool(trained.get("has_observe", manifest.workflow.max_turns > 1)),
    )
    return TaskSpec(name=TASK_NAME, params=params.model_dump())
