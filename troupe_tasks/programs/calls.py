"""The model calls of one life of a program: which wait, which were answered, which were repeated.

Owns identity: a call is known by the digest of what it asks and how often that was asked before,
never by the order of arrival. Safe to use from the endpoint's loop and from threads that judge.
"""

import hashlib
import json
import math
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from troupe.errors import InvalidArgumentError, UnavailableError
from troupe.tasks.family import in_hermes_form
from troupe.wire.dialect import CALL, replaced_calls
from troupe.wire.request import CallKey, ModelRequest
from troupe_tasks.programs.prompts import plain

FEWEST_CONNECTIONS, CONNECTIONS_A_CALL = 64, 2
"""Connections that a run may have, at least and for each call that may wait: a flood of calls is
refused by words, and a client keeps some connections for its next call."""
GIVEN_UP_CALLS = 8
"""Calls without an answer that a run may have, for each that may wait: clients gave them up."""
STALE = (
    "a client that was built in the warm run, before this run, still asks by its address: the "
    "program, or a library of it, keeps it outside the program's folder. Build the client in the "
    "program's entry point, or set task.params.warm: false"
)
"""What the program, and whoever reads how it ended, is told of such a call."""
_CALLS = re.compile(rf"\n?{CALL.pattern}\n?", re.DOTALL)
"""Calls, with the line ends that join them to the text."""


@dataclass(eq=False, slots=True)
class ModelCall:
    """One call that a program makes; requests that repeat it share it.

    ``num_open`` counts connections that wait for its answer, ``is_delivered`` says that one of
    them was sent it whole, ``was_left`` that none was there when it was answered,
    ``stopped_by`` which of its stops ended the answer.
    """

    request: ModelRequest
    headers: Mapping[str, str]
    key: CallKey
    number: int
    text: str | None = None
    num_open: int = 0
    is_delivered: bool = False
    was_left: bool = False
    stopped_by: str | None = None
    wake: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended: it returned ``answer``, or raised ``error``."""

    answer: str = ""
    error: str | None = None
    traceback: str = ""


class ProgramRun:
    """One life of a program, by the secret in its base URL.

    ``expired`` is called when ``expires_at`` (of ``time.monotonic``) has passed and it is served.
    """

    def __init__(
        self,
        max_waiting: int,
        digest: "Callable[[ModelRequest, Mapping[str, str]], str]",
        scripted: Callable[[ModelCall], str] | None = None,
    ) -> None:
        """``scripted``: answers every call at once, for warming up and probing."""
        self.name = secrets.token_hex(16)
        self.changed = threading.Condition()
        self.end: ProgramEnd | None = None
        self.has_ended = threading.Event()
        self.is_void = False
        self.expires_at = math.inf
        self.expired: Callable[[], None] = _nothing
        self.refusal: str | None = None
        self._refused_at: int | None = None
        self.is_flooded = False
        self.num_retries = 0
        self.num_events = 0
        self._changed_at = 0.0
        self.ports: set[int] = set()
        self.connections: set[object] = set()
        self.calls: list[ModelCall] = []
        self._digest = digest
        self._scripted = scripted
        self._max_waiting = max_waiting
        self._asked: Counter[str] = Counter()
        self._by_body: dict[str, ModelCall] = {}

    def ask(
        self,
        request: ModelRequest,
        body: bytes,
        headers: Mapping[str, str],
        wake: Callable[[], None],
    ) -> ModelCall:
        """The call of a request that has arrived; ``wake`` is called when it has its answer.

        A repeated body joins the call that it repeats if the client says so, or if every
        connection of that call was lost before its answer was sent. Anything else with the same
        body is a call of its own: a program may ask the same thing three times.
        """
        raw = hashlib.sha256(body).hexdigest()
        with self.changed:
            call = self._by_body.get(raw)
            is_orphan = call is not None and not call.num_open and not call.is_delivered
            if call is None or not (is_orphan or _retry_count(headers) > 0):
                call = self._new(request, headers)
                self._by_body[raw] = call
            else:
                self.num_retries += 1
            call.num_open += 1
            call.wake.append(wake)
            self._changed()
        if self._scripted is not None and call.text is None:
            self.answer(call, self._scripted(call))
        elif call.text is not None or self.is_void:
            wake()
        return call

    @property
    def is_scripted(self) -> bool:
        """Whether its calls are answered at once, to warm up or to probe."""
        return self._scripted is not None

    @property
    def is_stale(self) -> bool:
        """Whether it warmed a process up and is over: who still asks by it has an old client."""
        return self.is_scripted and self.is_void

    @property
    def is_full(self) -> bool:
        """Whether one more connection of it is too many: it would be at the expense of others."""
        most = max(FEWEST_CONNECTIONS, CONNECTIONS_A_CALL * self._max_waiting)
        return len(self.connections) >= most

    @property
    def num_calls(self) -> int:
        """Calls made so far, repeated requests not counted."""
        with self.changed:
            return len(self.calls)

    def has_hung(self, idle_s: float) -> bool:
        """Whether it asked, and neither asked again nor ended for ``idle_s`` since; its import,
        before the first call, may take longer."""
        with self.changed:
            is_idle = time.monotonic() - self._changed_at > idle_s
            return bool(self.calls) and self.end is None and is_idle

    def answer(self, call: ModelCall, text: str) -> None:
        """Answer a call that waits; a text that one of its ``stop`` ends is not cut by a bound.

        Raises UnavailableError when the run was ended meanwhile.
        """
        with self.changed:
            if self.is_void:
                raise UnavailableError("the run was ended before its call was answered")
            call.was_left = not call.num_open
            if self._refused_at is not None and call.number >= self._refused_at:
                self._refused_at = None
            call.text, call.stopped_by = until_stop(text, call.request)
            if self._scripted is None:  # a probe still tells what was shown
                call.request = call.request.without_images()
            self._changed()
            wakers = list(call.wake)
        for wake in wakers:
            wake()

    def left(self, call: ModelCall, wake: Callable[[], None], *, is_delivered: bool) -> None:
        """A connection has been sent the answer, or was lost."""
        with self.changed:
            if wake in call.wake:
                call.wake.remove(wake)
                call.num_open -= 1
            call.is_delivered = call.is_delivered or is_delivered
            self._changed()

    def finish(self, end: ProgramEnd) -> None:
        """The program has ended."""
        with self.changed:
            self.end = end
            self._changed()
        self.has_ended.set()

    def refuse(self, message: str) -> None:
        """Remember why a request was refused."""
        with self.changed:
            if self._refused_at is None:
                self.refusal = message
            self._refused_at = len(self.calls)
            self._changed()

    @property
    def is_refused(self) -> bool:
        """Whether a refusal, not the team, is to blame for what follows: the program has not shown
        that it coped by asking, and hearing, something else."""
        return self._refused_at is not None

    def void(self) -> None:
        """End the run: every connection that waits is closed."""
        with self.changed:
            self.is_void = True
            wakers = [wake for call in self.calls for wake in call.wake]
        for wake in wakers:
            wake()

    @property
    def waiting(self) -> list[ModelCall]:
        """Calls that wait for an answer on an open connection, in an order that repeats."""
        with self.changed:
            found = [call for call in self.calls if self.is_open(call)]
        return sorted(found, key=lambda call: (call.key.digest, call.key.occurrence))

    def is_open(self, call: ModelCall) -> bool:
        """Whether ``call`` waits for an answer on an open connection."""
        with self.changed:
            return call.text is None and call.num_open > 0

    def is_given_up(self, call: ModelCall) -> bool:
        """Whether nobody was there to be answered, and nobody came back for the answer."""
        with self.changed:
            return call.was_left and not call.num_open and not call.is_delivered

    @property
    def is_sending(self) -> bool:
        """Whether an answer is on its way to a connection."""
        with self.changed:
            return any(call.text is not None and call.num_open for call in self.calls)

    def _new(self, request: ModelRequest, headers: Mapping[str, str]) -> ModelCall:
        unanswered = [call for call in self.calls if call.text is None]
        if len(unanswered) >= GIVEN_UP_CALLS * self._max_waiting:
            self.is_flooded = True
            raise InvalidArgumentError(
                f"the program gave up, or still makes, {len(unanswered)} model calls that nobody "
                "answered; raise its client's time-out above the wait for a model"
            )
        if sum(call.num_open > 0 for call in unanswered) >= self._max_waiting:
            self.is_flooded = True
            raise InvalidArgumentError(
                f"the program makes more than {self._max_waiting} model calls at once "
                "(max_waiting); give its loop or its fan-out a bound"
            )
        digest = self._digest(request, headers)
        call = ModelCall(
            request, headers, CallKey(digest, self._asked[digest]), number=len(self.calls)
        )
        self._asked[digest] += 1
        self.calls.append(call)
        return call

    def _changed(self) -> None:
        self.num_events += 1
        self._changed_at = time.monotonic()
        self.changed.notify_all()


def digest_of(request: ModelRequest) -> str:
    """Sixteen hexadecimal digits of all that decides the answer to ``request``."""
    asked: list[object] = [
        request.model,
        [[m.role, plain(m.content)] for m in in_hermes_form(request.observation)],
        [[tool.name, tool.description, tool.parameters] for tool in request.tools],
        request.stop,
    ]
    if request.max_tokens is not None:
        asked.append(request.max_tokens)
    text = json.dumps(asked, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def until_stop(text: str, request: ModelRequest) -> tuple[str, str | None]:
    """What the program gets of ``text``: up to the first of its stops, and which one that is.

    Where it may call tools, a stop in a call ends nothing: calls are in Hermes form whatever the
    model wrote, so their line ends are not the model's.
    """
    shown = text
    if request.tools:
        shown = replaced_calls(lambda call: "\0" * len(call.group()), text, _CALLS)
    ends = [(at, stop) for stop in request.stop if stop and (at := shown.find(stop)) >= 0]
    if not ends:
        return text, None
    at, stop = min(ends, key=lambda end: end[0])
    return text[:at], stop


def _nothing() -> None:
    """What ``expired`` is before somebody owns the run's process."""


def _retry_count(headers: Mapping[str, str]) -> int:
    count = headers.get("x-stainless-retry-count", "0")
    return int(count) if count.isdecimal() and len(count) < 9 else 0
