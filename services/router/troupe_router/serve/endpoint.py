"""The HTTP of a served team, in the form of OpenAI's API: models and chat completions.

Owns routes, streams, deadlines and the form of errors. Never loads or samples anything.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from troupe.errors import DeadlineError, NotFoundError, TroupeError, UnavailableError
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.logging import get_logger
from troupe.spec.issues import suggest
from troupe.wire import chat
from troupe_router.rest.bodies import read_body
from troupe_router.serve.models import Note, PlayedStep, ServedAnswer, ServedModel
from troupe_router.serve.problems import answer_to, document_of, status_of
from troupe_router.serve.queue import RequestQueue
from troupe_router.serve.request import AskedChat, read_chat
from troupe_router.serve.settings import ServeSettings
from troupe_router.serve.team import ServedTeam

_log = get_logger(__name__)
_GONE = 499
"""The status that is counted for a client that did not wait."""


class ChatEndpoint:
    """Answers requests to the models of one team."""

    def __init__(self, team: ServedTeam, settings: ServeSettings) -> None:
        self._team = team
        self._settings = settings
        self._created = int(time.time())
        self.queue = RequestQueue(settings.max_running, settings.max_waiting)

    def app(self) -> Starlette:
        """The application; errors have OpenAI's form."""
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/models/{name}", self._model),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/livez", _livez),
                Route("/readyz", self._readyz),
                Route("/metrics", _metrics),
            ],
            exception_handlers={
                TroupeError: _on_troupe,
                HTTPException: _on_http,
                Exception: _on_bug,
            },
        )

    def is_ready(self) -> bool:
        """Whether requests are taken and the engine can answer them."""
        return not self.queue.is_closed and self._team.engine.is_ready()

    async def _models(self, _: Request) -> Response:
        data = [self._facts(model) for model in self._team.models.values()]
        return JSONResponse({"object": "list", "data": data})

    async def _model(self, request: Request) -> Response:
        return JSONResponse(self._facts(self._named(request.path_params["name"])))

    async def _readyz(self, _: Request) -> Response:
        if not self.is_ready():
            raise UnavailableError("the engine does not answer now, or this process is stopping")
        return JSONResponse({"status": "ok"})

    async def _complete(self, request: Request) -> Response:
        try:
            return await self._completed(request)
        except (TroupeError, HTTPException):
            raise
        except Exception as error:  # Starlette raises it again after its handler: no keep-alive
            return _on_bug(request, error)

    async def _completed(self, request: Request) -> Response:
        data = await read_body(request, self._settings.max_body_bytes, "shorten the messages")
        asked = read_chat(data, self._settings.max_choices)
        model = self._named(asked.model)
        if asked.is_stream:
            return await self._streamed(model, asked)
        answer = await _unless_gone(request, self._answered(model, asked, _nobody))
        if answer is None:
            return Response(status_code=_GONE)
        return JSONResponse(_document(model, answer))

    def _named(self, name: str) -> ServedModel:
        model = self._team.models.get(name)
        if model is None:
            raise NotFoundError(
                f"there is no model '{name[:100]}'; {suggest(name, self._team.models)}",
                pointer="model",
            )
        return model

    def _facts(self, model: ServedModel) -> dict[str, Any]:
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "troupe",
            "troupe": model.facts(),
        }

    async def _answered(self, model: ServedModel, asked: AskedChat, note: Note) -> ServedAnswer:
        """The answer, within the queue and the deadline; counted."""
        limit_s, began, status = self._settings.request_timeout_s, time.monotonic(), 200
        try:
            async with asyncio.timeout(limit_s), self.queue.turn():
                answer = await model.answer(asked, note, timeout_s=limit_s)
        except TimeoutError as error:
            status = DeadlineError.http_status
            raise DeadlineError(
                f"no answer within {limit_s:g} s (TROUPE_SERVE_REQUEST_TIMEOUT_S); ask for fewer "
                "tokens, or later"
            ) from error
        except asyncio.CancelledError:
            status = _GONE
            raise
        except TroupeError as error:
            status = status_of(error)
            raise
        except Exception:
            status = 500
            raise
        finally:
            metrics.SERVE_REQUESTS.labels(model.name, str(status)).inc()
            metrics.SERVE_SECONDS.labels(model.name).observe(time.monotonic() - began)
        metrics.SERVE_TOKENS.labels(model.name, "prompt").inc(answer.num_prompt_tokens)
        metrics.SERVE_TOKENS.labels(model.name, "sampled").inc(answer.num_sampled_tokens)
        return answer

    async def _streamed(self, model: ServedModel, asked: AskedChat) -> Response:
        """A stream; an error that comes before its first event has a status of its own."""
        news: asyncio.Queue[PlayedStep | None] = asyncio.Queue()
        work = asyncio.create_task(self._answered(model, asked, news.put_nowait))
        work.add_done_callback(lambda _: news.put_nowait(None))
        try:
            first = await _next(news, self._settings.keep_alive_s)
        except BaseException:
            work.cancel()
            raise
        if first is None:
            work.result()
        events = self._events(model, asked, news, work, first)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events(
        self,
        model: ServedModel,
        asked: AskedChat,
        news: "asyncio.Queue[PlayedStep | None]",
        work: "asyncio.Task[ServedAnswer]",
        step: "PlayedStep | _Silence | None",
    ) -> AsyncGenerator[bytes]:
        head = _head(model, "chat.completion.chunk")
        try:
            while step is not None:
                yield chat.event_of(
                    _empty(head) if isinstance(step, _Silence) else _step(head, step)
                )
                step = await _next(news, self._settings.keep_alive_s)
            document = {**_document(model, await work), **head}
            for chunk in chat.chunks_of(document, wants_usage=asked.wants_usage):
                yield chat.event_of(chunk)
            yield chat.DONE
        except TroupeError as error:
            yield chat.event_of(document_of(error))
        except Exception as error:
            _log.error("serve.crashed", model=model.name, exc_info=error)
            yield chat.event_of(document_of(_bug(error)))
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


class _Silence:
    """Nothing happened for a while."""


def _nobody(_: PlayedStep) -> None:
    """Steps of an answer that is sent whole stand in it."""


async def _next(
    news: "asyncio.Queue[PlayedStep | None]", timeout_s: float
) -> "PlayedStep | _Silence | None":
    try:
        async with asyncio.timeout(timeout_s):
            return await news.get()
    except TimeoutError:
        return _Silence()


async def _unless_gone(request: Request, work: Awaitable[ServedAnswer]) -> ServedAnswer | None:
    """The result of ``work``; None, and it is cancelled, when the client left."""
    answering = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        answering.cancel()
        leaving.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _head(model: ServedModel, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model.name,
    }


def _document(model: ServedModel, answer: ServedAnswer) -> dict[str, Any]:
    key = uuid.uuid4().hex[:12]
    document = {
        **_head(model, "chat.completion"),
        "choices": [
            chat.choice_of(choice, f"{key}_{index}", index=index)
            for index, choice in enumerate(answer.choices)
        ],
        "usage": chat.usage_of(answer.num_prompt_tokens, answer.num_sampled_tokens),
    }
    if answer.steps:
        document["troupe"] = {"steps": [step.document() for step in answer.steps]}
    return document


def _empty(head: dict[str, Any]) -> dict[str, Any]:
    """A chunk without content: it keeps clients waiting that count chunks and not bytes."""
    delta = {"role": "assistant", "content": ""}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _step(head: dict[str, Any], step: PlayedStep) -> dict[str, Any]:
    """A chunk without content: clients that do not know the field ``troupe`` skip it."""
    return {**_empty(head), "troupe": {"step": step.document()}}


async def _livez(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _metrics(_: Request) -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _on_troupe(_: Request, error: Exception) -> Response:
    assert isinstance(error, TroupeError)
    return answer_to(error)


def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:200]} is not served: {error.detail}"
    answer = answer_to(NotFoundError(f"{message}; /v1/models and /v1/chat/completions are"))
    answer.status_code = error.status_code
    return answer


def _on_bug(_: Request, error: Exception) -> Response:
    _log.error("serve.crashed", exc_info=error)
    return answer_to(_bug(error))


def _bug(error: Exception) -> TroupeError:
    return TroupeError(f"unexpected {type(error).__name__}; see the log of this process")
