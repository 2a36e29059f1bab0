"""Opens a team: its weights in one engine, and a model for each agent and for the team.

Owns their lifetime, and why a team cannot play where that is so. Never speaks HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from troupe import plugins
from troupe.bundles.planned import is_bundled, planned_family
from troupe.episodes.call_deadlines import CallDeadlines
from troupe.episodes.local import EngineRollout, LocalEnv
from troupe.episodes.ports import RequestPort, Start
from troupe.errors import InvalidArgumentError, TroupeError
from troupe.evaluation.serving import serving_engine
from troupe.publishing.manifest import TeamManifest
from troupe.publishing.team_folder import PUBLISHED_CODE, TeamFolder
from troupe.rewards.mix import RewardMix
from troupe.runtime.engines.engine import Engine
from troupe.spec import load_spec
from troupe.spec.job import AgentSpec, JobSpec, LimitsSpec, TaskSpec
from troupe.spec.policy import PolicySpec
from troupe.spec.reward import RewardSpec
from troupe.tasks.family import runs_programs
from troupe.tasks.optional import optional_method, request_task
from troupe.tasks.registry import load_family
from troupe.training.task import TASK_NAME, DatasetParams, DatasetTask
from troupe.workflows.load import load_workflow
from troupe.workflows.workflow import Workflow
from troupe_router.serve.bundled import bundled_env
from troupe_router.serve.models import AgentModel, RefusedTeam, ServedModel, TeamModel

_SAMPLES = ("1", "2")
"""Two requests that differ: what an agent is told in both is its instruction."""


@dataclass(frozen=True, slots=True)
class ServedTeam:
    """A loaded team: models by name, the team's own first.

    When one of ``ends`` is done, a process that it needs has ended; its error says which.
    """

    engine: Engine
    models: Mapping[str, ServedModel]
    ends: Sequence[asyncio.Task[None]]


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
        async with _Play(team, request_timeout_s) as play:
            instructions = await play.instructions()
            agents: dict[str, ServedModel] = {
                name: AgentModel(
                    name, entry.policy, instructions[name], entry.sampling, players[name]
                )
                for name, entry in manifest.agents.items()
            }
            team_name = manifest.name if manifest.name not in agents else f"{manifest.name}-team"
            models = {team_name: play.model(team_name, players), **agents}
            yield ServedTeam(engine, models, play.ends)


class _Play:
    """The team's task as an environment; ``refusal`` says why it cannot play requests.

    The code of a bundle runs in a process of its own, all other in this one.
    """

    def __init__(self, team: TeamFolder, request_timeout_s: float) -> None:
        self._team = team
        self._manifest = team.manifest
        self._timeout_s = request_timeout_s
        self._task = _task_of(team)
        self._modules: tuple[str, ...] | None = None
        if team.is_published:  # rows are played by a task of ours, which no manifest names
            self._modules = () if team.manifest.task else (DatasetTask.__module__,)
        self._env: RequestPort | None = None
        self._local_terms: Mapping[str, Mapping[str, float]] = {}
        self._workflow: Workflow | None = None
        self._refusal = ""
        self.ends: list[asyncio.Task[None]] = []
        self._open_env = AsyncExitStack()

    async def __aenter__(self) -> "_Play":
        try:
            with plugins.only_modules(self._modules, PUBLISHED_CODE):
                await self._open()
        except (Exception, SystemExit) as error:  # a task's code; its agents still serve
            self._refuse(error)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open_env.aclose()

    def _refuse(self, error: BaseException) -> None:
        raised = f"the task {self._task.name} raised {error!r} on a request"
        self._refusal = self._refusal or (
            error.message if isinstance(error, TroupeError) else raised
        )

    async def _open(self) -> None:
        spec = _bundled_spec(self._team)
        if spec is not None:
            self._local_terms = planned_family(spec).local_terms
            bundled = bundled_env(self._team.folder, spec)
            opened = await self._open_env.enter_async_context(bundled)
            self._env, self.ends = opened.env, [opened.end]
        else:
            family = load_family(self._task.name, self._task.params)
            self._local_terms = family.local_terms
            has_requests = optional_method(family, "request_task") is not None
            if has_requests or not runs_programs(family):
                self._env = self._open_env.enter_context(LocalEnv(family, threaded=True))
            request_task(family, _SAMPLES[0])
        self._workflow = load_workflow(self._team.workflow)

    async def instructions(self) -> dict[str, str]:
        """The system message of each agent: the manifest's, or what the task always tells it."""
        told = await self._told()
        return {
            name: agent.instruction or told.get(name, "")
            for name, agent in self._manifest.agents.items()
        }

    def model(self, name: str, players: Mapping[str, EngineRollout]) -> ServedModel:
        """The team, or the one that says why it is none."""
        manifest, workflow, env = self._manifest, self._workflow, self._env
        if self._refusal or workflow is None or env is None:
            return RefusedTeam(name, self._refusal, list(manifest.agents))
        spec = self._spec()
        return TeamModel(
            name,
            spec,
            {agent: entry.sampling for agent, entry in manifest.agents.items()},
            workflow,
            RewardMix(RewardSpec(), self._local_terms),
            env,
            players,
            CallDeadlines(spec),
        )

    def _spec(self) -> JobSpec:
        """A job without steps, as an evaluation has: each agent is its own policy."""
        agents = self._manifest.agents
        return JobSpec(
            name=self._manifest.name,
            steps=0,
            task=self._task,
            workflow=self._team.workflow,
            agents={name: AgentSpec(policy=name) for name in agents},
            policies={name: PolicySpec(model=agent.policy) for name, agent in agents.items()},
            limits=LimitsSpec(generate_timeout_s=self._timeout_s),
        )

    async def _told(self) -> dict[str, str]:
        """What each agent is told in two different tasks alike; nothing where there are none."""
        if self._env is None:
            return {}
        if not self._refusal:  # the task of a bundle has not been asked yet
            try:
                await self._sample(self._env, 0)
            except Exception as error:  # as above
                self._refuse(error)
        try:
            starts = [await self._sample(self._env, number) for number in range(len(_SAMPLES))]
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

    async def _sample(self, env: RequestPort, number: int) -> Start:
        agents, timeout_s = list(self._manifest.agents), self._timeout_s
        if not self._refusal:
            return await env.begin_request(_SAMPLES[number], observe=agents, timeout_s=timeout_s)
        return await env.reset(split="test", index=number, observe=agents, timeout_s=timeout_s)


def _bundled_spec(team: TeamFolder) -> JobSpec | None:
    """The job of a run folder whose task came in a bundle."""
    if team.is_published or team.manifest.task is None:
        return None
    spec = load_spec(team.folder / "spec.json")
    return spec if is_bundled(spec, spec.task.name) else None


def _task_of(team: TeamFolder) -> TaskSpec:
    """The task of requests: without data, which is the training's."""
    task = team.task
    if task is None:
        return _row_task(team.manifest)
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
