"""One connection of a client to the endpoint of programs: its requests, each answered in its time.

Owns the bytes: HTTP, formats, keep-alive. What a call is, and whose, is known to ``ProgramRun``.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import h11

from troupe.errors import InvalidArgumentError, TroupeError
from troupe.tasks.content import writable
from troupe.wire import chat, messages, responses
from troupe.wire.dialect import read_answer
from troupe.wire.images import overridden_detail, taken_out, with_images
from troupe_tasks.programs.calls import STALE, ModelCall, ProgramEnd, ProgramRun
from troupe_tasks.programs.keys import KEY_SEAT

if TYPE_CHECKING:
    from troupe_tasks.programs.endpoint import ProgramEndpoint

FORMATS: Mapping[str, ModuleType] = {
    "chat/completions": chat,
    "responses": responses,
    "messages": messages,
}
MAX_BODY_BYTES = 4 * 1024 * 1024
REQUEST_S = 60.0
"""Longest time from a connection's beginning to its first request with a valid secret or key."""
OK, BAD, NO_KEY, GONE, NOT_FOUND, TOO_LARGE = 200, 400, 401, 409, 404, 413
JSON_TYPE, EVENTS_TYPE = b"application/json", b"text/event-stream"


class EndpointConnection(asyncio.Protocol):
    """One connection of a client; requests on it come one after the other."""

    def __init__(
        self,
        endpoint: "ProgramEndpoint",
        loop: asyncio.AbstractEventLoop,
        run: ProgramRun | None = None,
    ) -> None:
        """``run``: the one whose own listener it came by."""
        self._endpoint = endpoint
        self._loop = loop
        self._http = h11.Connection(h11.SERVER)
        self._secret: str | None = None
        self._what = ""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._came_for = run
        self._asker: ProgramRun | None = None
        self._run: ProgramRun | None = None
        self._call: ModelCall | None = None
        self._format: ModuleType = chat
        self._timer: asyncio.TimerHandle | None = None
        self._first: asyncio.TimerHandle | None = None
        self._has_begun = False
        self._unsent = b""
        self._wake = lambda: endpoint.call_soon(self._woken)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer_port = transport.get_extra_info("peername")[1]
        run = self._came_for
        self._endpoint.entered(self, transport, self._peer_port, run)
        if self._endpoint.is_full or (run is not None and run.is_full):
            transport.abort()
            return
        if run is not None:
            run.connections.add(self)
        self._first = self._loop.call_later(REQUEST_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.has_left(self, self._transport)
        if self._first is not None:
            self._first.cancel()
        for run in (self._run, self._came_for):
            if run is not None:
                run.connections.discard(self)
        if self._run is not None:
            self._run.ports.discard(self._peer_port)
        self._leave(is_delivered=False)

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            self._advance()
        except h11.RemoteProtocolError:
            self._transport.close()

    def eof_received(self) -> bool:
        self._http.receive_data(b"")
        return False

    def _advance(self) -> None:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._recognise(event)
            elif isinstance(event, h11.Data):
                # Read to its end even so: a client that still sends would not hear why it failed.
                if self._asker is not None and len(self._body) <= MAX_BODY_BYTES:
                    self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._handle()
            else:
                if event is h11.PAUSED:  # more came than the one request that is answered
                    self._transport.pause_reading()
                return

    def _recognise(self, request: h11.Request) -> None:
        """Whose request it is, before any of its body is kept."""
        headers = {k.decode(): v.decode("utf-8", "replace") for k, v in request.headers}
        headers.pop(KEY_SEAT, None)
        path = request.target.decode("ascii", "replace").partition("?")[0]
        self._secret, self._what = _parts(path)
        run, agent = self._endpoint.keys.holder(headers) or (None, None)
        if self._secret is not None:
            self._asker = self._endpoint.run_called(self._secret)
        else:
            self._asker = run
        if agent is not None and run is self._asker:
            headers[KEY_SEAT] = agent
        self._headers, self._body = headers, bytearray()

    def _handle(self) -> None:
        run = self._asker
        if run is None:
            self._refuse_stranger()
            return
        if self._run is not run and not self._belongs_to(run):
            self._transport.abort()
            return
        if len(self._body) > MAX_BODY_BYTES:
            message = f"a request has at most {MAX_BODY_BYTES} bytes; send less, or smaller images"
            run.refuse(message)
            self._fail(TOO_LARGE, message)
            return
        self._routed(run, self._what)

    def _belongs_to(self, run: ProgramRun) -> bool:
        """Be a connection of ``run``, if it may have one more; a client may ask for one episode
        after the other by it."""
        if run.is_full and self not in run.connections:
            return False
        if self._run is not None:
            self._run.ports.discard(self._peer_port)
            self._run.connections.discard(self)
        self._run = run
        run.connections.add(self)
        run.ports.add(self._peer_port)
        self._endpoint.has_asked(self)
        if self._first is not None:
            self._first.cancel()
        return True

    def _refuse_stranger(self) -> None:
        self._endpoint.has_asked(self)
        if self._secret is not None:
            self._fail(GONE, "this run is over, or the URL is not that of a run")
            return
        message = (
            "this key is not valid: a key is given for one seat of one episode and ends with it. "
            "Send the one that the run was started with, as `Authorization: Bearer KEY` or "
            "`x-api-key: KEY`"
        )
        self._fail(NO_KEY, message, "authentication_error")

    def _routed(self, run: ProgramRun, what: str) -> None:
        if what == "end" and self._secret is not None:
            self._end(run)
        elif run.is_stale:
            self._endpoint.refuse_all(STALE)
            self._fail(GONE, STALE)
        elif what == "models":
            listed = {"id": "any", "object": "model", "created": 0, "owned_by": "troupe"}
            self._send_json({"object": "list", "data": [listed]})
        elif what in FORMATS:
            self._format = FORMATS[what]
            self._ask(run)
        else:
            known = ", ".join(f"/v1/{name}" for name in FORMATS)
            message = f"the program asked for /{what}, which is not served; served: {known}"
            run.refuse(message)
            self._fail(NOT_FOUND, message)

    def _end(self, run: ProgramRun) -> None:
        try:
            document: dict[str, Any] = json.loads(bytes(self._body))
            answer, error, lines = map(document.get, ("answer", "error", "traceback"))
        except (ValueError, AttributeError, RecursionError) as fault:
            self._fail(BAD, f"the end of a run is a JSON object: {fault}")
            return
        self._send_json({})
        run.finish(ProgramEnd(_text(answer), None if error is None else _text(error), _text(lines)))

    def _ask(self, run: ProgramRun) -> None:
        body = bytes(self._body)
        try:
            document = json.loads(body)
            if not isinstance(document, dict):
                raise InvalidArgumentError("the body is not a JSON object")
            shown, images = taken_out(document)
            request = with_images(self._format.read(shown), images)
            request = replace(
                request, overridden=(*request.overridden, *overridden_detail(document))
            )
            self._call = run.ask(request, body, self._headers, self._wake)
        except (TroupeError, ValueError, TypeError, AttributeError, RecursionError) as error:
            run.refuse(str(error))
            self._fail(BAD, str(error))
            return
        self._endpoint.count_overridden(request.overridden)
        if self._call.text is None:
            self._timer = self._loop.call_later(self._endpoint.keep_alive_s, self._keep_alive)

    def _keep_alive(self) -> None:
        """Send what a client skips, so that no read time-out of it ends the wait."""
        call = self._call
        if call is None or call.text is not None or self._transport.is_closing():
            return
        is_stream = call.request.is_stream
        self._begin(EVENTS_TYPE if is_stream else JSON_TYPE)
        self._write(h11.Data(data=b": wait\n\n" if is_stream else b" "))
        self._flush()
        self._timer = self._loop.call_later(self._endpoint.keep_alive_s, self._keep_alive)

    def _woken(self) -> None:
        call, run = self._call, self._run
        if call is None or run is None:
            return
        if call.text is None:
            if run.is_void:
                self._transport.close()
            return
        answer = read_answer(call.text, call.request.tools)
        answer = replace(answer, stopped_by=call.stopped_by)
        if call.request.is_stream:
            self._begin(EVENTS_TYPE)
            for event in self._format.stream(call.request, call.key, answer):
                self._write(h11.Data(data=event))
        else:
            self._begin(JSON_TYPE)
            document = self._format.document(call.request, call.key, answer)
            self._write(h11.Data(data=json.dumps(document).encode()))
        self._finish_message()
        self._when_sent()

    def _when_sent(self) -> None:
        """Say that the answer was delivered once the kernel holds all of it."""
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size():
            self._loop.call_later(0.001, self._when_sent)
            return
        self._leave(is_delivered=True)
        self._next_request()

    def _leave(self, *, is_delivered: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        call, self._call = self._call, None
        if call is not None and self._run is not None:
            self._run.left(call, self._wake, is_delivered=is_delivered)

    def _begin(self, content_type: bytes, status: int = OK) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = [(b"content-type", content_type), (b"transfer-encoding", b"chunked")]
            self._write_head(status, headers)

    def _fail(self, status: int, message: str, kind: str = "invalid_request_error") -> None:
        # SDKs repeat a 409: this tells them not to.
        self._send_json({"error": {"message": message, "type": kind}}, status)

    def _send_json(self, document: Mapping[str, Any], status: int = OK) -> None:
        data = json.dumps(document).encode()
        headers = [
            (b"content-type", JSON_TYPE),
            (b"content-length", str(len(data)).encode()),
            (b"x-should-retry", b"false"),
        ]
        self._write_head(status, headers)
        self._write(h11.Data(data=data))
        self._finish_message()
        self._loop.call_soon(self._next_request)

    def _write_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        if self._run is not None and self._run.is_scripted:
            # A warm-up's clients may outlive its event loop: they must keep no connection.
            headers = [*headers, (b"connection", b"close")]
        self._write(h11.Response(status_code=status, headers=headers))

    def _finish_message(self) -> None:
        self._write(h11.EndOfMessage())
        self._flush()
        self._has_begun = False

    def _next_request(self) -> None:
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
        elif self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._transport.resume_reading()
            self._loop.call_soon(partial(self._guarded, self._advance))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except h11.RemoteProtocolError:
            self._transport.close()

    def _write(self, event: Any) -> None:
        self._unsent += self._http.send(event) or b""

    def _flush(self) -> None:
        """Send at once what was written: a client woken by a head alone takes our processor."""
        data, self._unsent = self._unsent, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)


def _text(value: object) -> str:
    """What a program, or a command of its agent, posted: any JSON."""
    text = "" if value is None else str(value)
    return writable(text)[:MAX_BODY_BYTES]


def _parts(path: str) -> tuple[str | None, str]:
    """The secret of a run in the path, if it names one, and what is asked for below /v1."""
    secret, what = None, path.strip("/")
    if what.startswith("r/"):
        _, secret, what = (*what.split("/", 2), "")[:3]
    return secret, what.removeprefix("v1/").strip("/")
