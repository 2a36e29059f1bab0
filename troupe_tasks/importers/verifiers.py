"""Environments of verifiers as tasks: ``verifiers:wordle``, of its releases before and from 0.4.

A model call of the environment is an agent's turn. Its rewards, by the names that it gives them,
are terms; their weighted sum pays the team.
"""

import json
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from troupe.errors import InvalidArgumentError
from troupe.spec.params import Params
from troupe_tasks.adapters.family import load_function
from troupe_tasks.adapters.pool import Worlds
from troupe_tasks.adapters.record import decode
from troupe_tasks.importers.environment import ImportedEnvironment
from troupe_tasks.importers.process import GuestProcess, ImportSettings
from troupe_tasks.importers.rows import RowTaskset
from troupe_tasks.importers.world import OWN, Bounds, Guests, RolloutWorld, Row
from troupe_tasks.programs.settings import interpreter_of

START_S = 300.0
_NAME = re.compile(r"(?:[\w.-]+/)?[A-Za-z_][\w-]*")


class VerifiersParams(Params):
    """Which release, with which arguments, and what bounds a rollout."""

    api: Literal["auto", "load_environment", "taskset"] = Field(
        default="auto",
        description="load_environment: verifiers before 0.4; taskset: from 0.4; auto: what the "
        "installed release has.",
    )
    args: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Arguments of load_environment, or the taskset's configuration.",
    )
    env: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="From 0.4: the environment's configuration; agents are set by their names.",
    )
    datasets: dict[str, Path] = Field(
        default_factory=dict[str, Path],
        description="Data sets of the hub by id, read from JSONL files instead.",
    )
    python: str | None = Field(
        default=None,
        description="Interpreter that verifiers and the environment are installed for; without "
        "it Troupe's own. TROUPE_PROGRAM_INTERPRETERS says which may be named.",
    )
    max_rows: int = Field(
        default=2000, ge=1, le=1_000_000, description="Rows of the environment that are used."
    )
    max_calls: int = Field(default=30, ge=1, le=500, description="Answers in an episode, at most.")
    return_bound: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Largest team return of an episode; without it the sum of the positive "
        "weights, as rewards usually lie between 0 and 1.",
    )
    success_return: float = Field(
        default=1.0, allow_inf_nan=False, description="Return from which an episode is a success."
    )
    rewards: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]],
        description="Further rewards by agent, which only the environment's own code names.",
    )
    own_weight: float | None = Field(
        default=None,
        ge=0,
        description="Default weight of the term 'own', what the environment paid the agent; "
        "without it 0 for one agent and 1 for several.",
    )
    samples: list[str] = Field(
        default_factory=list[str], description="Answers that a random agent draws from."
    )
    expert: str | None = Field(
        default=None,
        description="module:attr of a function (messages, agent, rng) -> answer, for "
        "demonstrations.",
    )
    processes: int = Field(default=1, ge=1, le=16, description="Processes that hold rollouts.")
    max_live: int = Field(default=32, ge=0, le=1024, description="Idle rollouts that are kept.")
    cpu_s: float = Field(default=30.0, gt=0, description="Processor time of one step; more pays 0.")
    run_s: float = Field(default=120.0, gt=0, description="Time of one step.")


class VerifiersEnvironment:
    """Agents of an environment of verifiers.

    ``agents``, ``local_terms`` and ``return_bound`` depend on the environment.
    """

    name: ClassVar[str] = "verifiers"
    package: ClassVar[str] = ""
    Params: ClassVar[type[BaseModel]] = VerifiersParams
    agents: tuple[str, ...] = ()
    local_terms: Mapping[str, Mapping[str, float]] = {}
    return_bound: float = 0.0
    is_scripted: bool = False
    runs_programs: bool = True
    usual_workflow: Mapping[str, Any] = {}

    def __init__(self, params: BaseModel) -> None:
        self.params = VerifiersParams.model_validate(params.model_dump())
        self._expert = load_function(self.params.expert, "/task/params/expert")
        self._guests = Guests([self._process() for _ in range(self.params.processes)])
        weakref.finalize(self, self._guests.close)
        about = self._guests.next().ask("describe", cpu_s=START_S, timeout_s=START_S)
        self._rows = tuple(
            Row(pool, index, key)
            for pool, keys in about["rows"].items()
            for index, key in enumerate(keys)
        )
        self.agents = tuple(about["agents"])
        self._terms = {
            agent: [*about["rewards"].get(agent, ()), *self.params.rewards.get(agent, ())]
            for agent in self.agents
        }
        own = self.params.own_weight
        own = float(len(self.agents) > 1) if own is None else own
        self.local_terms = {
            agent: {OWN: own, **dict.fromkeys(terms, 0.0)} for agent, terms in self._terms.items()
        }
        self.return_bound = self._bound(about["rewards"])
        self.is_scripted = self._expert is not None
        self.usual_workflow = {
            "kind": "self_play",
            "order": list(self.agents),
            "max_turns": self.params.max_calls,
        }
        if self.params.samples:
            self.random_action: Callable[[bytes, str, Random], str] = self._sample
        if self._expert is not None:
            self.demonstrate: Callable[[bytes, str, Random], str] = self._demonstration

    def taskset(self) -> RowTaskset:
        """The environment's rows, each in the split that its content names."""
        return RowTaskset(self.name, self._rows)

    def environment(self) -> ImportedEnvironment:
        """The environment, which holds rollouts in its processes."""
        params = self.params
        bounds = Bounds(params.cpu_s, params.run_s, params.success_return, self._terms)
        worlds = Worlds(
            lambda: RolloutWorld(self._guests.next(), self._rows, bounds), max_live=params.max_live
        )
        return ImportedEnvironment(self.agents, self._rows, worlds, self._guests, params.max_calls)

    def _process(self) -> GuestProcess:
        params = self.params
        settings = {
            "api": params.api,
            "name": self.package,
            "args": params.args,
            "env": params.env,
            "datasets": {name: str(path.resolve()) for name, path in params.datasets.items()},
            "max_rows": params.max_rows,
            "allows_runtime": ImportSettings().allows_runtime,
        }
        python = interpreter_of(params.python)
        return GuestProcess(python, "verifiers_any", settings, start_s=START_S)

    def _bound(self, rewards: Mapping[str, Mapping[str, float]]) -> float:
        if self.params.return_bound is not None:
            return self.params.return_bound
        weights = [weight for terms in rewards.values() for weight in terms.values()]
        return sum(weight for weight in weights if weight > 0) or 1.0

    def _sample(self, state: bytes, agent: str, rng: Random) -> str:
        return rng.choice(self.params.samples)

    def _demonstration(self, state: bytes, agent: str, rng: Random) -> str:
        assert self._expert is not None
        prompt = decode(state).prompts.get(agent)
        messages: Sequence[Any] = json.loads(prompt) if prompt else []
        shown = [{"role": role, "content": text} for role, text in messages]
        return str(self._expert(shown, agent, rng))


@cache
def imported(package: str) -> type[VerifiersEnvironment]:
    """The family of one environment package, by its name.

    Raises InvalidArgumentError for what is no name; that it is not installed is told when the
    family is made.
    """
    if not _NAME.fullmatch(package):
        raise InvalidArgumentError(
            f"'{package}' is no name of an environment; write verifiers:wordle",
            pointer="/task/name",
        )
    about = {"name": f"verifiers:{package}", "package": package, "__doc__": _DOC + package}
    return type("VerifiersEnvironment", (VerifiersEnvironment,), about)


_DOC = "An environment of verifiers, paid by its own rewards: "
