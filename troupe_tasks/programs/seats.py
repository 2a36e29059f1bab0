"""Which agent a model call is for."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from troupe.errors import InvalidArgumentError, ProgramBadCallError
from troupe.tasks.content import Content, TextPart
from troupe.tasks.tool_calls import ToolCall
from troupe.wire.request import ModelRequest
from troupe_tasks.programs.calls import digest_of
from troupe_tasks.programs.keys import KEY_SEAT
from troupe_tasks.programs.params import SeatParams

HEADER = "x-troupe-agent"
SHOWN_CHARS = 200


class Seats:
    """The agents of a job, by the rules of its spec.

    Rules are tried by kind: key, model, header, system, then ``rest``. The ``name`` of a message is
    never looked at: it is the speaker's, often the other agent's.
    """

    def __init__(self, seats: Mapping[str, SeatParams]) -> None:
        self._seats = seats
        self._patterns = {
            agent: re.compile(seat.system) for agent, seat in seats.items() if seat.system
        }
        self._masks = {
            agent: re.compile(seat.ignore) for agent, seat in seats.items() if seat.ignore
        }

    def agent_of(self, request: ModelRequest, headers: Mapping[str, str]) -> str:
        """The agent whose call it is.

        Raises ProgramBadCallError that shows the call when no rule, or more than one, decides.
        """
        header, holder = headers.get(HEADER), headers.get(KEY_SEAT)
        by_rule = (
            [a for a, seat in self._seats.items() if seat.key and a == holder],
            [a for a, seat in self._seats.items() if seat.model == request.model],
            [a for a, seat in self._seats.items() if header and seat.header == header],
            [a for a, pattern in self._patterns.items() if pattern.search(request.system)],
            [a for a, seat in self._seats.items() if seat.rest],
        )
        for agents in by_rule:
            if len(agents) == 1:
                return agents[0]
            if agents:
                both = " and ".join(agents)
                raise self._unclear(request, header, f"agents {both} both claim")
        raise self._unclear(request, header, "no agent claims")

    def digest(self, request: ModelRequest, headers: Mapping[str, str]) -> str:
        """The digest of what the agent is asked; that of all that was sent where none is."""
        try:
            agent = self.agent_of(request, headers)
        except InvalidArgumentError:
            return digest_of(request)
        self.check_images(agent, request)
        return digest_of(self.shown(agent, request))

    def check_images(self, agent: str, request: ModelRequest) -> None:
        """Raises ProgramBadCallError for images that are shown to a seat that takes none."""
        if request.images and not self._seats[agent].images:
            raise ProgramBadCallError(
                f"the program shows '{agent}' an image, and this seat takes none; set images: true "
                "if its policy is a vision-language model",
                pointer=f"/task/params/seats/{agent}/images",
            )

    def shown(self, agent: str, request: ModelRequest) -> ModelRequest:
        """The request with what ``ignore`` matches masked: in texts, arguments, descriptions."""
        mask = self._masks.get(agent)
        if mask is None:
            return request

        def masked(text: str) -> str:
            return mask.sub("*", text)

        messages = [
            replace(
                message,
                content=_masked(mask, message.content),
                tool_calls=tuple(
                    ToolCall(call.name, _masked_arguments(mask, call.arguments))
                    for call in message.tool_calls
                ),
            )
            for message in request.messages
        ]
        tools = [replace(tool, description=masked(tool.description)) for tool in request.tools]
        return replace(request, messages=tuple(messages), tools=tuple(tools))

    def _unclear(self, request: ModelRequest, header: str | None, what: str) -> ProgramBadCallError:
        return ProgramBadCallError(
            f"{what} a call of model {request.model!r}, header X-Troupe-Agent "
            f"{header!r}, tools [{', '.join(t.name for t in request.tools)}], "
            f"that begins {request.system[:SHOWN_CHARS]!r}; seats: {self._rules()}. Write a seat "
            "that fits it alone (`troupe program probe SPEC` prints every call)",
            pointer="/task/params/seats",
        )

    def _rules(self) -> str:
        return "; ".join(f"{agent}: {_rule(seat)}" for agent, seat in self._seats.items())


def _masked(mask: re.Pattern[str], content: Content) -> Content:
    if isinstance(content, str):
        return mask.sub("*", content)
    return tuple(
        TextPart(mask.sub("*", part.text)) if isinstance(part, TextPart) else part
        for part in content
    )


def _masked_arguments(mask: re.Pattern[str], arguments: str) -> str:
    """Texts and numbers of the JSON masked, so that it stays JSON; any text where it is none."""

    def leaves(given: Any) -> Any:
        if isinstance(given, dict):
            return {key: leaves(value) for key, value in given.items()}
        if isinstance(given, list):
            return [leaves(value) for value in given]
        return mask.sub("*", given) if isinstance(given, str) else given

    def number(kind: Callable[[str], float]) -> Callable[[str], float | str]:
        return lambda text: "*" if mask.search(text) else kind(text)

    try:
        document = json.loads(arguments)
        masked = leaves(json.loads(arguments, parse_int=number(int), parse_float=number(float)))
    except (ValueError, RecursionError):
        return mask.sub("*", arguments)
    return arguments if masked == document else json.dumps(masked)


def _rule(seat: SeatParams) -> str:
    rules: Sequence[tuple[str, object]] = [
        ("key", seat.key or None),
        ("model", seat.model),
        ("header", seat.header),
        ("system", seat.system),
        ("rest", seat.rest or None),
    ]
    return ", ".join(f"{name} {value!r}" for name, value in rules if value is not None)
