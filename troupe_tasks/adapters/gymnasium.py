"""Any Gymnasium environment as a task family of one agent.

``task: {name: gymnasium, params: {env: FrozenLake-v1, actions: [left, down, right, up],
return_bound: 1}}``.
"""

import base64
import contextlib
import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe.tasks.content import ImagePart
from troupe_tasks.adapters.actions import Actions, NamedActions, ParsedBy
from troupe_tasks.adapters.family import AdaptedFamily, load_function, missing_package
from troupe_tasks.adapters.frames import SightParams, image_of
from troupe_tasks.adapters.randomness import OwnRandomness
from troupe_tasks.adapters.render import MAX_CHARS, render
from troupe_tasks.adapters.world import Moment, is_paid_at_end

AGENT = "player"
_ID_OF_MODULE = re.compile(r"[\w.]+:(?:[\w.-]+/)?[\w.-]+-v\d+")
"""Gymnasium's name for an id that a module registers: ``minigrid:MiniGrid-Empty-5x5-v0``."""


class GymnasiumParams(SightParams):
    """Which environment, and how its actions and observations read."""

    env: str = Field(
        description="Id for gymnasium.make, `module:Id-v0` where a module registers it, or "
        "`module:attr` of a class or factory."
    )
    env_kwargs: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")
    actions: list[str] | None = Field(
        default=None, description="Names of a discrete space's actions, in order; else numbers."
    )
    parser: str | None = Field(
        default=None,
        description="module:attr of a function text -> action (a JSON value) or None; needed for "
        "action spaces that are not discrete.",
    )
    renderer: str | None = Field(
        default=None, description="module:attr of a function (observation, info) -> text."
    )
    is_drawn: bool = Field(
        default=False, description="Show the environment's own text drawing (render_mode ansi)."
    )
    success_return: float | None = Field(
        default=None,
        description="Return from which an ended episode is a success, whatever ended it; give it "
        "where docs/adapters.md says that the environment's own rewards tell too little.",
    )
    save: str | None = Field(
        default=None, description="module:attr of a function env -> bytes, instead of replays."
    )
    restore: str | None = Field(
        default=None, description="module:attr of a function (env, bytes) that undoes save."
    )


class GymnasiumWorld:
    """One live Gymnasium environment."""

    def __init__(self, params: GymnasiumParams) -> None:
        self._params = params
        self._renderer = load_function(params.renderer, "/task/params/renderer")
        self._save = load_function(params.save, "/task/params/save")
        self._restore = load_function(params.restore, "/task/params/restore")
        self._random = OwnRandomness()
        self._total = 0.0
        self._at_reset = ("", "")
        with self._random.installed():
            self.env = make_env(params)

    def reset(self, seed: int) -> Moment:
        self._random.seed(seed)
        self._total = 0.0
        with self._random.installed():
            observation, info = self.env.reset(seed=seed)
            moment = self._moment(observation, info, 0.0, is_done=False, is_success=False)
        if self._save is not None:
            self._at_reset = self._random.saved()
        return moment

    def act(self, agent: str, action: Any) -> Moment:
        with self._random.installed():
            observation, paid, terminated, truncated, info = self.env.step(action)
            self._total += float(paid)
            is_done = bool(terminated or truncated)
            is_success = self._is_success(float(paid), bool(terminated), is_done, info)
            return self._moment(observation, info, float(paid), is_done, is_success)

    def save(self) -> str | None:
        if self._save is None:
            return None
        parts = [repr(self._total), base64.b64encode(self._save(self.env)).decode()]
        # A generator that stands where the reset left it, as most do, takes no room in the state.
        now = self._random.saved()
        if now != self._at_reset:
            parts += ["" if a == b else a for a, b in zip(now, self._at_reset, strict=True)]
        return " ".join(parts)

    def restore(self, saved: str) -> None:
        assert self._restore is not None
        total, text, *drawn = saved.split(" ")
        self._total = float(total)
        self._restore(self.env, base64.b64decode(text))
        if drawn:
            self._random.restore(*drawn)

    def close(self) -> None:
        self.env.close()

    def _is_success(
        self, paid: float, terminated: bool, is_done: bool, info: Mapping[str, Any]
    ) -> bool:
        if self._params.success_return is not None:
            return self._total >= self._params.success_return
        reported = info.get("is_success", info.get("success"))
        if reported is not None:
            return bool(reported)
        # A function of a user may give an environment that is no gymnasium.Env.
        threshold = getattr(getattr(self.env, "spec", None), "reward_threshold", None)
        is_solved = threshold is not None and self._total >= threshold
        return is_done and (is_solved or (terminated and is_paid_at_end(paid, self._total)))

    def _moment(
        self,
        observation: Any,
        info: Mapping[str, Any],
        paid: float,
        is_done: bool,
        is_success: bool,
    ) -> Moment:
        if self._renderer is not None:
            shown = str(self._renderer(observation, info))[:MAX_CHARS]
        else:
            shown = render(observation) if self._params.observe == "text" else ""
        if self._params.is_drawn:
            shown = f"{self.env.render()}\n{shown}"[:MAX_CHARS]
        mask = info.get("action_mask")
        legal = None if mask is None else [i for i, allowed in enumerate(mask) if allowed]
        note: dict[str, Any] = {} if legal is None else {"legal": {AGENT: legal}}
        images: dict[str, ImagePart] = {}
        if self._params.observe != "text":
            frame = self.env.render() if self._params.observe == "image" else observation
            images[AGENT] = image_of(frame, self._params.max_image_px)
        return Moment({AGENT: shown}, {AGENT: paid}, is_done, is_success, note, images)


class GymnasiumFamily(AdaptedFamily):
    """One agent, ``player``, in a Gymnasium environment."""

    name: ClassVar[str] = "gymnasium"
    Params: ClassVar[type[BaseModel]] = GymnasiumParams

    def __init__(self, params: BaseModel) -> None:
        checked = GymnasiumParams.model_validate(params.model_dump())
        if (checked.save is None) != (checked.restore is None):
            raise InvalidArgumentError("give both save and restore, or neither of them")
        if checked.is_drawn and checked.observe == "image":
            raise InvalidArgumentError(
                "an environment draws either text or frames; leave is_drawn out",
                pointer="/task/params/is_drawn",
            )
        actions = _actions(checked)
        super().__init__(checked, lambda: GymnasiumWorld(checked), {AGENT: actions})


def make_env(params: GymnasiumParams) -> Any:
    """A new environment; raises InvalidArgumentError when it cannot be made."""
    kwargs = dict(params.env_kwargs)
    if params.is_drawn or params.observe == "image":
        kwargs["render_mode"] = "ansi" if params.is_drawn else "rgb_array"
    try:
        import gymnasium
    except ImportError as error:
        raise missing_package("gymnasium", error) from error
    try:
        if ":" in params.env and not _ID_OF_MODULE.fullmatch(params.env):
            return plugins.load("environments", params.env)(**kwargs)
        plugins.check(params.env, pointer="/task/params/env")
        return gymnasium.make(params.env, disable_env_checker=True, **kwargs)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise InvalidArgumentError(
            f"the environment '{params.env}' cannot be made with {kwargs}: {error}",
            pointer="/task/params/env",
        ) from error


def _actions(params: GymnasiumParams) -> Actions:
    with OwnRandomness().installed():
        env = make_env(params)
    with contextlib.closing(env):
        space = env.action_space
        kind = type(space).__name__
        if params.parser is not None:
            parse = load_function(params.parser, "/task/params/parser")
            assert parse is not None
            return ParsedBy(parse, sampler(space))
        if kind != "Discrete":
            raise InvalidArgumentError(
                f"'{params.env}' has the action space {space}, which text does not name; give "
                "'parser', the module:attr of a function from text to an action",
                pointer="/task/params/parser",
            )
        return NamedActions(named(params.actions, int(space.n), int(space.start)))


def named(names: list[str] | None, count: int, start: int = 0) -> dict[str, int]:
    """Name -> action of a discrete space; raises InvalidArgumentError for wrong counts."""
    chosen = names or [str(start + i) for i in range(count)]
    if len(chosen) != count or len({name.casefold() for name in chosen}) != count:
        raise InvalidArgumentError(
            f"the environment has {count} actions; give as many different names, not {chosen}",
            pointer="/task/params/actions",
        )
    return {name: start + i for i, name in enumerate(chosen)}


def sampler(space: Any) -> Callable[[Random], str]:
    """Draws the text of a random action of any space: its numbers, with blanks between them."""

    def sample(rng: Random) -> str:
        space.seed(rng.getrandbits(31))
        return " ".join(str(number) for number in np.ravel(space.sample()))

    return sample
