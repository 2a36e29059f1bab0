"""PettingZoo environments, AEC and parallel, as task families of several agents."""

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.spec.issues import suggest
from troupe.tasks.content import ImagePart
from troupe_tasks.adapters.actions import Actions, NamedActions, ParsedBy
from troupe_tasks.adapters.family import (
    AdaptedFamily,
    load_function,
    missing_package,
)
from troupe_tasks.adapters.frames import SightParams, image_of
from troupe_tasks.adapters.gymnasium import named, sampler
from troupe_tasks.adapters.randomness import OwnRandomness
from troupe_tasks.adapters.render import MAX_CHARS, render
from troupe_tasks.adapters.world import Moment


class PettingZooParams(SightParams):
    """Which environment, and how its actions and observations read."""

    env: str = Field(
        description="Id for pettingzoo.make, such as classic/tictactoe-v3, or module:attr of a "
        "factory."
    )
    api: Literal["aec", "parallel"] = Field(
        default="aec",
        description="aec: agents act in turn. parallel: they act at once, and none sees what the "
        "others of the same turn do.",
    )
    env_kwargs: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")
    actions: list[str] | None = Field(
        default=None, description="Names of the discrete actions, in order; else numbers."
    )
    parser: str | None = Field(
        default=None, description="module:attr of a function text -> action or None."
    )
    renderer: str | None = Field(
        default=None, description="module:attr of a function (observation, agent) -> text."
    )
    own_weight: float = Field(
        default=1.0,
        ge=0,
        description="Default weight of the local term 'own': what the environment paid the agent.",
    )
    success: Literal["any_positive", "all_positive"] = Field(
        default="all_positive",
        description="A finished episode is a success when the return of all (or any) agents is "
        "positive.",
    )


class PettingZooWorld:
    """One live environment. In a parallel one, actions wait until every live agent has acted."""

    def __init__(self, params: PettingZooParams) -> None:
        self._params = params
        self._renderer = load_function(params.renderer, "/task/params/renderer")
        self._random = OwnRandomness()
        with self._random.installed():
            self.env = make_env(params)
        self._is_parallel = params.api == "parallel"
        self._seen: dict[str, Any] = {}
        self._waiting: dict[str, Any] = {}
        self._totals: dict[str, float] = {}

    def reset(self, seed: int) -> Moment:
        self._random.seed(seed)
        self._waiting.clear()
        self._totals = dict.fromkeys(self.env.possible_agents, 0.0)
        with self._random.installed():
            reset = self.env.reset(seed=seed)
            if self._is_parallel:
                self._seen = dict(reset[0])
            return self._moment({})

    def act(self, agent: str, action: Any) -> Moment:
        with self._random.installed():
            before = dict(self._totals)
            if self._is_parallel:
                self._act_together(agent, action)
            else:
                self._act_alone(action)
            paid = {name: self._totals[name] - before[name] for name in before}
            return self._moment({name: value for name, value in paid.items() if value})

    def save(self) -> str | None:
        return None

    def restore(self, saved: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.env.close()

    def _act_together(self, agent: str, action: Any) -> None:
        self._waiting[agent] = action
        if set(self._waiting) < set(self.env.agents):
            return
        observations, rewards, _, _, _ = self.env.step(dict(self._waiting))
        self._waiting.clear()
        self._seen = dict(observations)
        for name, value in rewards.items():
            self._totals[name] += float(value)

    def _act_alone(self, action: Any) -> None:
        self._step_alone(action)
        # Agents that are out of the game are stepped past, as agent_iter's users do.
        while self.env.agents and self._is_out(self.env.agent_selection):
            self._step_alone(None)

    def _step_alone(self, action: Any) -> None:
        # ``rewards`` holds what this step paid everybody; the cumulative ones restart by agent.
        self.env.step(action)
        if action is not None:
            for name, value in self.env.rewards.items():
                self._totals[name] += float(value)

    def _is_out(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _moment(self, paid: Mapping[str, float]) -> Moment:
        is_done = not self.env.agents
        prompts: dict[str, str] = {}
        legal: dict[str, list[int]] = {}
        images: dict[str, ImagePart] = {}
        for agent in self._to_act():
            observation = self._seen[agent] if self._is_parallel else self.env.observe(agent)
            mask = observation.get("action_mask") if isinstance(observation, Mapping) else None
            if mask is not None:
                legal[agent] = [i for i, allowed in enumerate(mask) if allowed]
            prompts[agent] = self._text(observation, agent)
            if self._params.observe == "pixels":
                images[agent] = image_of(observation, self._params.max_image_px)
        if self._params.observe == "image" and prompts:
            frame = image_of(self.env.render(), self._params.max_image_px)
            images = dict.fromkeys(prompts, frame)
        positive = [total > 0 for total in self._totals.values()]
        enough = any if self._params.success == "any_positive" else all
        note: dict[str, Any] = {"legal": legal} if legal else {}
        return Moment(prompts, paid, is_done, is_done and enough(positive), note, images)

    def _to_act(self) -> list[str]:
        if not self.env.agents:
            return []
        if self._is_parallel:
            return [agent for agent in self.env.agents if agent not in self._waiting]
        return [self.env.agent_selection]

    def _text(self, observation: Any, agent: str) -> str:
        if self._renderer is not None:
            return str(self._renderer(observation, agent))[:MAX_CHARS]
        if self._params.observe != "text":
            return f"You are {agent}."
        return f"You are {agent}.\n{render(observation)}"[:MAX_CHARS]


class PettingZooFamily(AdaptedFamily):
    """The agents of a PettingZoo environment, by their own names.

    The team is paid the sum of all rewards, and each agent's own reward is its local term ``own``:
    in a zero-sum game the team term is 0, and ``own`` is what a policy learns from.
    """

    name: ClassVar[str] = "pettingzoo"
    Params: ClassVar[type[BaseModel]] = PettingZooParams

    def __init__(self, params: BaseModel) -> None:
        checked = PettingZooParams.model_validate(params.model_dump())
        super().__init__(
            checked, lambda: PettingZooWorld(checked), _actions(checked), workflow="self_play"
        )


def make_env(params: PettingZooParams) -> Any:
    """A new environment; raises InvalidArgumentError when it cannot be made."""
    drawn = {"render_mode": "rgb_array"} if params.observe == "image" else {}
    kwargs = {**params.env_kwargs, **drawn}
    try:
        if ":" in params.env:
            factory = plugins.load("environments", params.env, pointer="/task/params/env")
            env = factory(**kwargs)
        else:
            env = _registered(params, kwargs)
    except (TypeError, ImportError) as error:
        raise InvalidArgumentError(
            f"the environment '{params.env}' cannot be made with {kwargs}: {error}",
            pointer="/task/params/env",
        ) from error
    if hasattr(env, "agent_iter") == (params.api == "parallel"):
        raise InvalidArgumentError(
            f"'{params.env}' is not a PettingZoo environment of the {params.api} API",
            pointer="/task/params/api",
        )
    return env


def _registered(params: PettingZooParams, kwargs: Mapping[str, Any]) -> Any:
    try:
        # By name: beside this file, `pettingzoo` would read as this module to a type checker.
        package: Any = importlib.import_module("pettingzoo")
    except ImportError as error:
        raise missing_package("pettingzoo", error) from error
    registry = package.parallel_registry if params.api == "parallel" else package.aec_registry
    if params.env not in registry:
        raise InvalidArgumentError(
            f"PettingZoo has no {params.api} environment '{params.env}'; "
            f"{suggest(params.env, registry)} (or give module:attr)",
            pointer="/task/params/env",
        )
    return package.make(params.api, params.env, **kwargs)


def _actions(params: PettingZooParams) -> dict[str, Actions]:
    with OwnRandomness().installed():
        env = make_env(params)
    with contextlib.closing(env):
        return {
            agent: _actions_of(params, env.action_space(agent)) for agent in env.possible_agents
        }


def _actions_of(params: PettingZooParams, space: Any) -> Actions:
    if params.parser is not None:
        parse = load_function(params.parser, "/task/params/parser")
        assert parse is not None
        return ParsedBy(parse, sampler(space))
    if type(space).__name__ != "Discrete":
        raise InvalidArgumentError(
            f"'{params.env}' has the action space {space}, which text does not name; give "
            "'parser', the module:attr of a function from text to an action",
            pointer="/task/params/parser",
        )
    return NamedActions(named(params.actions, int(space.n), int(space.start)))
