"""Sessions with an OpenEnv server, over its WebSocket or its HTTP routes.

Owns the wire. What a machine does wrong is a retryable error, and nobody here retries: whoever
holds the ticket does. An action that the server's schema refuses is the agent's mistake.
"""

import contextlib
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    OverloadedError,
    TroupeError,
    UnavailableError,
)
from troupe.runtime.plain_answers import PLAIN, read_plain
from troupe_tasks.adapters.family import missing_package
from troupe_tasks.adapters.hosts import check_reached

MAX_MESSAGE_BYTES = 16 * 1024 * 1024

_WRONG, _REFUSED, _FULL, _BROKEN = 400, 422, 429, 500


@dataclass(frozen=True, slots=True)
class Served:
    """The server's answer to a reset or step; ``refused`` says why an action was not taken."""

    observation: Mapping[str, Any]
    reward: float
    is_done: bool
    refused: str | None = None


class Session(Protocol):
    """One episode at a time on a server."""

    def reset(self, request: Mapping[str, Any]) -> Served:
        """Begin an episode."""
        ...

    def step(self, action: Mapping[str, Any]) -> Served:
        """Carry out an action."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class _Slots:
    """At most so many sessions at a time; waiting for one has a deadline."""

    def __init__(self, count: int, timeout_s: float) -> None:
        self._slots = threading.Semaphore(count)
        self._timeout_s = timeout_s

    def take(self) -> None:
        if not self._slots.acquire(timeout=self._timeout_s):
            raise OverloadedError(
                f"no session with the OpenEnv server was free for {self._timeout_s:g} s; raise "
                "max_sessions if the server allows more"
            )

    def give(self) -> None:
        self._slots.release()


class SocketSession:
    """A session of its own at ``/ws``: JSON messages of type reset, step, observation, error."""

    def __init__(self, url: str, timeout_s: float, slots: _Slots) -> None:
        try:
            from websockets.exceptions import ConnectionClosed, WebSocketException
            from websockets.sync.client import connect
        except ImportError as error:
            raise missing_package("websockets", error) from error
        self._closed = ConnectionClosed
        self._failures = (WebSocketException, OSError, EOFError)
        self._timeout_s = timeout_s
        check_reached(url)
        self._slots = slots
        self._stack = contextlib.ExitStack()
        self._address = "ws" + url.removeprefix("http") + "/ws"
        slots.take()
        self._is_open = True
        try:
            # Named, the place of the connection is not a redirect's to choose: it was not checked.
            opened = connect(
                self._address,
                address=_place(url),
                open_timeout=timeout_s,
                close_timeout=1,
                max_size=MAX_MESSAGE_BYTES,
                proxy=None,
            )
            self._socket = self._stack.enter_context(opened)
        except TimeoutError as error:
            self._release()
            raise DeadlineError(f"{self._address} did not answer in {timeout_s:g} s") from error
        except (*self._failures, ValueError) as error:
            self._release()
            raise UnavailableError(f"{self._address} cannot be reached: {error}") from error

    @classmethod
    def opener(cls, url: str, timeout_s: float, max_sessions: int) -> Callable[[], "SocketSession"]:
        """A function that opens sessions, at most ``max_sessions`` at a time."""
        slots = _Slots(max_sessions, timeout_s)
        return lambda: cls(url, timeout_s, slots)

    def reset(self, request: Mapping[str, Any]) -> Served:
        served = self._exchange({"type": "reset", "data": dict(request)})
        if served.refused is not None:
            raise InvalidArgumentError(f"{self._address} refused the reset: {served.refused}")
        return served

    def step(self, action: Mapping[str, Any]) -> Served:
        return self._exchange({"type": "step", "data": dict(action)})

    def close(self) -> None:
        if self._is_open:
            try:
                self._stack.close()
            finally:
                self._release()

    def _release(self) -> None:
        self._is_open = False
        self._slots.give()

    def _exchange(self, message: Mapping[str, Any]) -> Served:
        try:
            # A full server says so before it is asked, and closes: its word can still be read.
            with contextlib.suppress(self._closed):
                self._socket.send(json.dumps(message))
            raw = self._socket.recv(timeout=self._timeout_s)
        except TimeoutError as error:
            raise DeadlineError(
                f"{self._address} did not answer '{message['type']}' in {self._timeout_s:g} s"
            ) from error
        except self._failures as error:
            raise UnavailableError(f"the session with {self._address} broke: {error}") from error
        answer = _object(raw, self._address)
        data = answer.get("data")
        if answer.get("type") == "error":
            return _error(data if isinstance(data, dict) else {}, self._address)
        return served_from(data, self._address)


class HttpSession:
    """The one episode of a server with ``POST /reset`` and ``/step``; held for a whole replay.

    The server must keep the episode between requests. Newer ones make a new environment for each
    HTTP request; that is noticed by ``GET /state``, where the server counts steps.
    """

    def __init__(self, url: str, timeout_s: float, slots: _Slots) -> None:
        check_reached(url)
        self._slots = slots
        self._num_steps = 0
        self._episode_id = ""
        slots.take()
        self._client = httpx.Client(
            base_url=url,
            timeout=timeout_s,
            trust_env=False,
            headers=PLAIN,
        )
        self._is_open = True

    @classmethod
    def opener(cls, url: str, timeout_s: float, max_sessions: int) -> Callable[[], "HttpSession"]:
        """A function that takes the server's only episode when it is free."""
        slots = _Slots(1, timeout_s)
        return lambda: cls(url, timeout_s, slots)

    def reset(self, request: Mapping[str, Any]) -> Served:
        self._num_steps = 0
        self._episode_id = uuid.uuid4().hex
        served = self._exchange("/reset", {"episode_id": self._episode_id, **request})
        if served.refused is not None:
            raise InvalidArgumentError(
                f"{self._client.base_url} refused the reset: {served.refused}"
            )
        self._check_episode_kept()
        return served

    def step(self, action: Mapping[str, Any]) -> Served:
        served = self._exchange("/step", {"action": dict(action)})
        if served.refused is None:
            self._num_steps += 1
            self._check_episode_kept()
        return served

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._client.close()
            self._slots.give()

    def _check_episode_kept(self) -> None:
        """Check that the server still holds the episode: its id, where it takes one, and steps."""
        state = self._json(self._sent("GET", "/state", None)[1], "/state")
        count = state.get("step_count")
        episode_id = state.get("episode_id")
        url = self._client.base_url
        if episode_id == self._episode_id and count == self._num_steps:
            return
        if count == 0 and self._num_steps > 0:
            raise InvalidArgumentError(
                f"{url} lost the episode after a step: it makes a new environment for "
                "each HTTP request; use transport: websocket"
            )
        if isinstance(count, int) and count != self._num_steps:
            raise UnavailableError(
                f"{url} counts {count} steps where {self._num_steps} were made: another "
                "client uses it; give each env process a separate server"
            )

    def _exchange(self, path: str, body: Mapping[str, Any]) -> Served:
        code, raw = self._sent("POST", path, body)
        if code == _REFUSED:
            return Served({}, 0.0, is_done=False, refused=raw.decode(errors="replace"))
        return served_from(self._json(raw, path), str(self._client.base_url))

    def _sent(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        """The status, of success or `_REFUSED`, and the body."""
        where = f"{method} {self._client.base_url}{path.lstrip('/')}"
        try:
            with self._client.stream(method, path, json=body) as response:
                advice = "have the server show less at a time"
                code = response.status_code
                raw = read_plain(response, where, MAX_MESSAGE_BYTES, advice)
        except httpx.TimeoutException as error:
            raise DeadlineError(f"{where} was not answered in time") from error
        except httpx.HTTPError as error:
            raise UnavailableError(f"{where} failed: {error}") from error
        said = raw[:200].decode(errors="replace")
        if code == _FULL:
            raise OverloadedError(f"{where} answered 429")
        if code >= _BROKEN:
            raise UnavailableError(f"{where} answered {code}: {said}")
        if code >= _WRONG and code != _REFUSED:
            raise InvalidArgumentError(f"{where} answered {code}: {said}")
        return code, raw

    def _json(self, raw: bytes, path: str) -> dict[str, Any]:
        return _object(raw, f"{self._client.base_url}{path.lstrip('/')}")


def _place(url: str) -> tuple[str, int]:
    """Host and port that ``url`` leads to."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def served_from(data: Any, where: str) -> Served:
    """The server's ``{observation, reward, done}``; raises UnavailableError for anything else."""
    if not isinstance(data, dict) or not isinstance(data.get("observation"), dict):
        raise UnavailableError(f"{where} answered without an observation: {str(data)[:200]}")
    reward = data.get("reward")
    return Served(data["observation"], float(reward or 0.0), bool(data.get("done", False)))


def _error(data: Mapping[str, Any], where: str) -> Served:
    """What an error message means: the agent's mistake, a full server, or a broken one."""
    code, message = str(data.get("code", "")), str(data.get("message", ""))
    if code == "VALIDATION_ERROR":
        problems = data.get("errors") or []
        reasons = "; ".join(
            f"{'.'.join(str(part) for part in problem.get('loc', ()))}: {problem.get('msg', '')}"
            for problem in problems
            if isinstance(problem, dict)
        )
        return Served({}, 0.0, is_done=False, refused=reasons or message)
    failure: type[TroupeError] = UnavailableError
    if code == "CAPACITY_REACHED":
        failure = OverloadedError
    raise failure(f"{where} answered {code or 'an error'}: {message}")


def _object(raw: str | bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except ValueError as error:
        raise UnavailableError(f"{where} answered with no JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnavailableError(f"{where} answered {str(document)[:200]}, not an object")
    return document
