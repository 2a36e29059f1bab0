"""TextArena-style text games: ``reset``, ``get_observation``, ``step(text)``, ``close``.

Duck-typed: any class with these four works, and TextArena itself need not be installed for it.
"""

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from troupe import plugins
from troupe.errors import InvalidArgumentError
from troupe_tasks.adapters.actions import FreeText
from troupe_tasks.adapters.family import AdaptedFamily, AdapterParams, missing_package
from troupe_tasks.adapters.randomness import OwnRandomness
from troupe_tasks.adapters.world import Moment

MAX_PROMPT = 20_000
"""Characters of the latest observations that a player is shown."""


class TextArenaParams(AdapterParams):
    """Which game, for how many players."""

    env: str = Field(
        description="Id for textarena.make, or module:attr of a class or factory of a game."
    )
    env_kwargs: dict[str, Any] = Field(default_factory=dict, description="Its arguments.")
    num_players: int = Field(default=2, ge=1, le=15, description="Seats: player_0, player_1, ...")
    return_bound: float = Field(
        default=0.0,
        allow_inf_nan=False,
        description="Largest sum of all players' rewards; 0 for a zero-sum game.",
    )
    own_weight: float = Field(default=1.0, ge=0, description="Default weight of the term 'own'.")
    samples: list[str] = Field(
        default_factory=lambda: ["pass"],
        description="Answers that a random player draws from, such as '[0]', '[1]'.",
    )
    success: Literal["any_positive", "all_positive"] = Field(
        default="all_positive",
        description="A finished game is a success when all (or any) players' rewards are positive.",
    )


class TextArenaWorld:
    """One live game. Each player is shown all that it has been told so far, newest last."""

    def __init__(self, params: TextArenaParams) -> None:
        self._params = params
        self._random = OwnRandomness()
        with self._random.installed():
            self.env = make_env(params)
        self._transcripts: dict[int, str] = {}
        self._is_over = False

    def reset(self, seed: int) -> Moment:
        self._random.seed(seed)
        self._transcripts.clear()
        self._is_over = False
        with self._random.installed():
            self.env.reset(num_players=self._params.num_players, seed=seed)
            return self._next_moment()

    def act(self, agent: str, action: Any) -> Moment:
        with self._random.installed():
            is_done, info = self.env.step(action=str(action))
            if not is_done:
                return self._next_moment()
            self._is_over = True
            rewards, reason = _ending(self.env.close())
        paid = {_seat(player): float(value) for player, value in rewards.items()}
        positive = [value > 0 for value in paid.values()]
        enough = any if self._params.success == "any_positive" else all
        note = {"reason": reason[:500]} if reason else {}
        return Moment({}, paid, True, bool(positive) and enough(positive), {**note, **_plain(info)})

    def save(self) -> str | None:
        return None

    def restore(self, saved: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            # A game that is not over has no rewards yet; some games then refuse to be closed.
            with contextlib.suppress(Exception):
                self.env.close()

    def _next_moment(self) -> Moment:
        player, observation = self.env.get_observation()
        text = _text(observation)
        transcript = self._transcripts.get(int(player), "")
        # Wrappers of TextArena repeat the whole story, bare games tell only what is new.
        transcript = text if text.startswith(transcript) else f"{transcript}\n{text}"
        self._transcripts[int(player)] = transcript
        return Moment({_seat(player): transcript[-MAX_PROMPT:].strip()}, {}, False, False)


class TextArenaFamily(AdaptedFamily):
    """Players of a text game: ``player_0``, ``player_1``, ...; the whole answer is the move.

    The team is paid the sum of all players' rewards, and each player's own is the term ``own``.
    """

    name: ClassVar[str] = "textarena"
    Params: ClassVar[type[BaseModel]] = TextArenaParams

    def __init__(self, params: BaseModel) -> None:
        checked = TextArenaParams.model_validate(params.model_dump())
        actions = {_seat(n): FreeText(samples=checked.samples) for n in range(checked.num_players)}
        super().__init__(checked, lambda: TextArenaWorld(checked), actions, workflow="self_play")


def make_env(params: TextArenaParams) -> Any:
    """A new game; raises InvalidArgumentError when it cannot be made."""
    try:
        if ":" in params.env:
            return plugins.load("games", params.env)(**params.env_kwargs)
        # By name: beside this file, `textarena` would read as this module to a type checker.
        textarena: Any = importlib.import_module("textarena")
    except ImportError as error:
        raise missing_package("textarena", error) from error
    try:
        return textarena.make(params.env, **params.env_kwargs)
    except (ValueError, TypeError, ImportError) as error:
        raise InvalidArgumentError(
            f"the game '{params.env}' cannot be made with {params.env_kwargs}: {error}",
            pointer="/task/params/env",
        ) from error


def _seat(player: Any) -> str:
    return f"player_{int(player)}"


def _text(observation: Any) -> str:
    """An observation: a text, or a list of (from, message, ...) entries."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, Sequence):
        return "\n".join(_line(entry) for entry in observation)
    return str(observation)


def _line(entry: Any) -> str:
    if isinstance(entry, (tuple, list)) and len(entry) >= 2:
        sender = "GAME" if int(entry[0]) < 0 else f"Player {int(entry[0])}"
        return f"[{sender}] {entry[1]}"
    return str(entry)


def _ending(closed: Any) -> tuple[Mapping[Any, Any], str]:
    """Rewards and a reason from what ``close`` gave: rewards, or (rewards, info by player)."""
    rewards, info = closed if isinstance(closed, tuple) else (closed, {})
    if not isinstance(rewards, Mapping):
        return {}, ""
    reasons = {
        str(about["reason"])
        for about in (info.values() if isinstance(info, Mapping) else ())
        if isinstance(about, Mapping) and about.get("reason")
    }
    return rewards, "; ".join(sorted(reasons))


def _plain(info: Any) -> dict[str, Any]:
    """Entries of a game's step info that are plain JSON values."""
    if not isinstance(info, Mapping):
        return {}
    return {
        str(key): value
        for key, value in info.items()
        if isinstance(value, (str, int, bool)) and len(str(value)) < 500
    }
