"""OpenEnv servers as a task family of one agent.

A server keeps each episode in a session, so a state here is the seed and the actions since, and a
step finds its session or replays into a new one. Actions are JSON objects.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from troupe.errors import InvalidArgumentError
from troupe.tasks.content import ImagePart
from troupe_tasks.adapters.actions import Actions, FreeText, JsonObject, NamedActions
from troupe_tasks.adapters.family import AdaptedFamily
from troupe_tasks.adapters.frames import FrameParams, image_in_json
from troupe_tasks.adapters.hosts import check_host
from troupe_tasks.adapters.openenv_client import HttpSession, Served, Session, SocketSession
from troupe_tasks.adapters.render import render
from troupe_tasks.adapters.world import Moment, is_paid_at_end

AGENT = "player"


class OpenEnvParams(FrameParams):
    """Which server, and how answers become its actions."""

    url: str = Field(description="Address of the server, such as http://127.0.0.1:8000.")
    transport: Literal["websocket", "http"] = Field(
        default="websocket",
        description="websocket: a session for each episode, at /ws. http: /reset and /step of a "
        "server that keeps one episode, such as OpenEnv's first releases.",
    )
    text_field: str | None = Field(
        default=None, description="Field of the action that takes the whole answer."
    )
    actions: dict[str, dict[str, Any]] | None = Field(
        default=None, description="Named actions: name -> the action object."
    )
    samples: list[dict[str, Any]] = Field(
        default_factory=list[dict[str, Any]],
        description="Action objects that a random agent draws from and that the prompt shows.",
    )
    text_samples: list[str] = Field(
        default_factory=list[str], description="The same for text_field: answers."
    )
    reset: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of the reset request."
    )
    show: list[str] = Field(
        default_factory=list[str], description="Fields of the observation to show; empty: all."
    )
    image: str | None = Field(
        default=None,
        description="Field of the observation that is an image: a PNG in base64, or numbers of 0 "
        "to 255 in nested lists, or in one list with `<field>_shape` beside it.",
    )
    timeout_s: float = Field(default=30.0, gt=0, le=600, description="Time for one answer.")
    max_sessions: int = Field(
        default=1, ge=1, le=256, description="Sessions that a process opens at a time."
    )
    max_live: int = Field(
        default=0, ge=0, le=256, description="Of these, sessions kept open between steps."
    )
    success_return: float | None = Field(
        default=None,
        description="Return from which an ended episode is a success, whatever ended it; else one "
        "that ends with a positive reward and brought nothing, in sum, before.",
    )

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return url.rstrip("/")


class OpenEnvWorld:
    """One session on the server."""

    def __init__(self, params: OpenEnvParams, session: Session) -> None:
        self._params = params
        self._session = session
        self._total = 0.0
        self._images: dict[str, ImagePart] = {}

    def reset(self, seed: int) -> Moment:
        self._total, self._images = 0.0, {}
        served = self._session.reset({"seed": seed, **self._params.reset})
        field = self._params.image
        if field is not None and field not in served.observation:
            raise InvalidArgumentError(
                f"the observation of {self._params.url} has no field '{field}' to show as image; "
                f"it has {', '.join(sorted(served.observation)) or 'none'}",
                pointer="/task/params/image",
            )
        return replace(self._moment(served), is_success=False)

    def act(self, agent: str, action: Any) -> Moment:
        served = self._session.step(action)
        if served.refused is not None:
            # The action did not fit the server's schema: an agent's mistake, which changes nothing.
            return Moment(
                {AGENT: f"That action was refused: {served.refused[:500]}"},
                {},
                False,
                self._is_success(served),
                {"refused": served.refused[:500]},
                self._images,
            )
        self._total += served.reward
        return self._moment(served)

    def save(self) -> str | None:
        return None

    def restore(self, saved: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._session.close()

    def _is_success(self, served: Served) -> bool:
        if self._params.success_return is not None:
            return self._total >= self._params.success_return
        return served.is_done and is_paid_at_end(served.reward, self._total)

    def _moment(self, served: Served) -> Moment:
        observation = shown = served.observation
        if (field := self._params.image) is not None:
            shown = {k: v for k, v in shown.items() if k not in (field, f"{field}_shape")}
            value, shape = observation.get(field), observation.get(f"{field}_shape")
            image = image_in_json(value, shape, self._params.max_image_px) if value else None
            self._images = {} if image is None else {AGENT: image}
        if self._params.show:
            shown = {name: shown[name] for name in self._params.show if name in shown}
        return Moment(
            {AGENT: render(shown) or "(nothing to see)"},
            {AGENT: served.reward},
            served.is_done,
            self._is_success(served),
            images=self._images,
        )


class OpenEnvFamily(AdaptedFamily):
    """One agent, ``player``, on an OpenEnv server."""

    name: ClassVar[str] = "openenv"
    Params: ClassVar[type[BaseModel]] = OpenEnvParams

    def __init__(self, params: BaseModel) -> None:
        checked = OpenEnvParams.model_validate(params.model_dump())
        check_host(checked.url)
        sessions = HttpSession if checked.transport == "http" else SocketSession
        opener = sessions.opener(checked.url, checked.timeout_s, checked.max_sessions)
        actions = {AGENT: _actions(checked)}
        super().__init__(checked, lambda: OpenEnvWorld(checked, opener()), actions)


def _actions(params: OpenEnvParams) -> Actions:
    if params.actions is not None:
        return NamedActions(params.actions)
    if params.text_field is not None:
        return FreeText(params.text_field, params.text_samples)
    return JsonObject(params.samples)
