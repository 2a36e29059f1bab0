"""The task family that all adapters share: parameters, tasks, scripts, vocabulary."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from troupe import plugins
from troupe.errors import InvalidArgumentError, TroupeError
from troupe_tasks.adapters.actions import Actions
from troupe_tasks.adapters.environment import FORMAT, OWN, AdaptedEnvironment, Rules
from troupe_tasks.adapters.pool import Worlds
from troupe_tasks.adapters.record import Record, decode
from troupe_tasks.adapters.tasks import SeededTaskset
from troupe_tasks.adapters.world import World

NUM_PROMPTS = 8
"""First prompts that the vocabulary is collected from."""


class AdapterParams(BaseModel):
    """What every adapter takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = Field(default=0, ge=0, description="Seed of the taskset.")
    num_tasks: int | None = Field(
        default=None, ge=1, description="Tasks in each split; empty: without end."
    )
    max_steps: int = Field(
        default=100, ge=1, le=2000, description="Steps of an episode, at most; bounds the state."
    )
    return_bound: float = Field(
        allow_inf_nan=False,
        description="Largest team return that an episode can pay, after reward_scale.",
    )
    reward_scale: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Factor on the environment's rewards."
    )
    unread_reward: float = Field(
        default=0.0,
        le=0,
        allow_inf_nan=False,
        description="Team reward of an answer that holds no action. Where each action costs "
        "something, give as much here, or silence pays best.",
    )
    format_weight: float = Field(
        default=0.1, ge=0, description="Default weight of the local term 'format'."
    )
    own_weight: float = Field(
        default=0.0,
        ge=0,
        description="Default weight of the local term 'own': what the environment paid the agent.",
    )
    prompt: str = Field(default="", description="System message: the rules, for the agents.")
    expert: str | None = Field(
        default=None,
        description="module:attr of a function (prompt, agent, rng) -> answer, for demonstrations.",
    )
    max_live: int = Field(
        default=8, ge=0, le=256, description="Idle live environments kept by a process."
    )


CODE_FIELDS = ("env", "expert", "parser", "renderer", "save", "restore")
"""Parameters of adapters that may name code as ``module:attr``."""


class AdaptedFamily:
    """A task family around a foreign environment; adapters say how to make one and read answers.

    ``agents``, ``local_terms`` and ``return_bound`` depend on the parameters.
    """

    name: ClassVar[str] = "adapted"
    Params: ClassVar[type[BaseModel]] = AdapterParams
    agents: tuple[str, ...] = ()
    local_terms: Mapping[str, Mapping[str, float]] = {}
    return_bound: float = 0.0
    is_scripted: bool = False
    usual_workflow: Mapping[str, Any] = {}

    def __init__(
        self,
        params: AdapterParams,
        make: Callable[[], World],
        actions: Mapping[str, Actions],
        *,
        workflow: str = "turn_based",
    ) -> None:
        for field in CODE_FIELDS:
            # Some of it is loaded when an episode begins, where no spec is checked any more.
            plugins.check(getattr(params, field, None) or "", pointer=f"/task/params/{field}")
        self._params = params
        self._actions = actions
        self._worlds = Worlds(make, max_live=params.max_live)
        self.agents = tuple(actions)
        terms = {FORMAT: params.format_weight, OWN: params.own_weight}
        self.local_terms = dict.fromkeys(self.agents, terms)
        self.return_bound = params.return_bound
        self._expert = load_function(params.expert, "/task/params/expert")
        self.is_scripted = self._expert is not None
        self.usual_workflow = {
            "kind": workflow,
            "order": list(self.agents),
            "max_turns": params.max_steps,
        }

    def taskset(self) -> SeededTaskset:
        """The family's tasks: seeds."""
        return SeededTaskset(self.name, self._params.seed, self._params.num_tasks)

    def environment(self) -> AdaptedEnvironment:
        """The family's judge."""
        params = self._params
        rules = Rules(
            self.agents,
            params.max_steps,
            params.reward_scale,
            params.unread_reward,
            params.prompt,
        )
        return AdaptedEnvironment(self._worlds, self._actions, rules)

    def demonstrate(self, state: bytes, agent: str, rng: Random) -> str:
        """The expert's answer, or a random action where there is no expert."""
        record = decode(state)
        if self._expert is None or agent not in record.prompts:
            return self.random_action(state, agent, rng)
        return str(self._expert(record.prompts[agent], agent, rng))

    def random_action(self, state: bytes, agent: str, rng: Random) -> str:
        """A readable answer, legal where the environment says what is."""
        return self._actions[agent].draw(rng, legal_actions(decode(state), agent))

    def vocabulary(self) -> Sequence[str]:
        """Words of the answers and of a few first prompts."""
        words = [word for actions in self._actions.values() for word in actions.words()]
        words += [word for actions in self._actions.values() for word in actions.ask().split()]
        words += self._params.prompt.split()
        taskset = self.taskset()
        with contextlib.suppress(TroupeError):
            for index in range(min(NUM_PROMPTS, self._params.num_tasks or NUM_PROMPTS)):
                seed = int(json.loads(taskset.task("train", index).payload)["seed"])
                world, moment = self._worlds.begin(seed)
                world.close()
                words += [word for shown in moment.prompts.values() for word in shown.split()]
        return [*dict.fromkeys(words)]


def legal_actions(record: Record, agent: str) -> Sequence[int] | None:
    """Legal actions of ``agent`` where the environment tells them."""
    return record.note.get("legal", {}).get(agent)


def load_function(name: str | None, pointer: str) -> Callable[..., Any] | None:
    """The user's function ``module:attr``, or None; raises InvalidArgumentError."""
    if name is None:
        return None
    if ":" not in name:
        raise InvalidArgumentError(f"'{name}' is not module:attr", pointer=pointer)
    function = plugins.load("functions", name, pointer=pointer)
    if not callable(function):
        raise InvalidArgumentError(f"'{name}' cannot be called", pointer=pointer)
    return function


def missing_package(package: str, error: ImportError) -> InvalidArgumentError:
    """What to say when an adapter's package is not installed."""
    return InvalidArgumentError(
        f"this task needs the package '{package}', which cannot be imported ({error}); install it "
        "with pip install 'troupe[adapters]', or by its name",
        pointer="/task/name",
    )
