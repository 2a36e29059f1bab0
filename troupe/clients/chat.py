"""Client of any OpenAI-compatible server: chat completions and the list of models.

Owns URLs, JSON shapes, retries and the mapping of HTTP failures to a TroupeError. Images go as data
URLs of PNG; answers are text, since such servers return no token ids. Never logs or repeats the API
key.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

from troupe.candidates import FinishReason, GenerateRequest, Generation, text_generation
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    OverloadedError,
    TroupeError,
    UnavailableError,
)
from troupe.retry import Backoff, retry
from troupe.tasks.family import Observation, in_hermes_form
from troupe.vision.data_url import chat_content

_BACKOFF = Backoff(0.25, 20.0)
_SEED_BITS = 31
"""Servers accept 64-bit, 32-bit or signed seeds; this many bits fit all of them."""
_T = TypeVar("_T")


class ChatClient:
    """Client of one server; ``base_url`` ends in the version, ``http://host:8000/v1``."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        max_connections: int = 64,
        max_attempts: int = 6,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._max_attempts = max_attempts
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = httpx.AsyncClient(
                base_url=self._base_url,
                headers=headers,
                limits=httpx.Limits(max_connections=max_connections),
                transport=transport,
                trust_env=False,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidArgumentError(
                f"{base_url!r} is not a URL of an OpenAI-compatible server ({error}); give "
                "http://host:port/v1"
            ) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def models(self, *, timeout_s: float) -> list[str]:
        """Names of the models that the server offers; two attempts at most, to fail early."""
        document = await self._retried(
            lambda left_s: self._once("GET", "/models", timeout=left_s),
            timeout_s=timeout_s,
            max_attempts=2,
        )
        entries = document.get("data")
        if not isinstance(entries, list):
            raise self._stranger("its list of models has no 'data'")
        return [str(e["id"]) for e in entries if isinstance(e, dict) and "id" in e]

    async def complete(
        self,
        model: str,
        request: GenerateRequest[Observation],
        *,
        timeout_s: float,
    ) -> Generation:
        """Candidates by the server's ``model``, whatever the policy; retries inside ``timeout_s``.

        They have text and no token ids; token counts are the server's, 0 when it reports none.

        Raises:
            DeadlineError, OverloadedError, UnavailableError: the server did not answer in time.
            InvalidArgumentError, NotFoundError: it refuses the request; asking again won't help.
        """
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": model,
            "messages": [
                {"role": m.role, "content": chat_content(m.content)}
                for m in in_hermes_form(request.prompt)
            ],
            "n": request.num_candidates,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": request.seed & ((1 << _SEED_BITS) - 1),
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.top_k > 0:
            body["top_k"] = sampling.top_k
        document = await self._retried(
            lambda left_s: self._once("POST", "/chat/completions", json=body, timeout=left_s),
            timeout_s=timeout_s,
            max_attempts=self._max_attempts,
        )
        return self._generation(document, request)

    def _generation(
        self, document: dict[str, Any], request: GenerateRequest[Observation]
    ) -> Generation:
        try:
            usage = document.get("usage") or {}
            counted = int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)
            texts = [_text(choice) for choice in document["choices"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._stranger(f"its answer has no choices ({error!r})") from error
        if any(choice.get("finish_reason") == "content_filter" for choice in document["choices"]):
            raise InvalidArgumentError(
                f"the content filter of {self._base_url} withheld an answer, which is none of the "
                "model's own; change the prompt, or the filter"
            )
        if len(texts) != request.num_candidates:
            raise self._stranger(f"it gave {len(texts)} choices for n = {request.num_candidates}")
        return text_generation(request, texts, counted)

    async def _retried(
        self, call: Callable[[float], Awaitable[_T]], *, timeout_s: float, max_attempts: int
    ) -> _T:
        """Call ``call`` with the remaining seconds, and repeat it while that may help."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        try:
            return await retry(
                lambda: call(deadline - now()),
                _BACKOFF,
                within_s=timeout_s,
                max_attempts=max_attempts,
                may_pass=lambda error: isinstance(error, _RetryLaterError),
                asks_for_s=lambda error: getattr(error, "after_s", 0.0),
            )
        except _RetryLaterError as later:
            raise later.error from later.__cause__

    async def _once(self, method: str, path: str, *, timeout: float, **request: Any) -> Any:
        try:
            async with asyncio.timeout(timeout):
                response = await self._http.request(method, path, timeout=timeout, **request)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise DeadlineError(
                f"{self._base_url}{path} did not answer within {timeout:.1f} s; give it more time, "
                "or fewer episodes at once"
            ) from error
        except httpx.TransportError as error:
            raise _RetryLaterError(self._unreachable(error)) from error
        except httpx.InvalidURL as error:
            raise InvalidArgumentError(f"{self._base_url}: {error}") from error
        if response.is_error:
            raise self._problem(response)
        try:
            document = response.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._stranger("its answer is not a JSON object")
        return document

    def _problem(self, response: httpx.Response) -> Exception:
        status = response.status_code
        reply = f"HTTP {status}: {' '.join(response.text.split())[:300] or 'no text'}"
        if status == 429:
            overloaded = OverloadedError(
                f"{self._base_url} is overloaded ({reply}); try later, or play fewer episodes "
                "at once"
            )
            return _RetryLaterError(overloaded, _retry_after_s(response))
        if status >= 500 or status == 408:
            return _RetryLaterError(
                UnavailableError(f"{self._base_url} failed ({reply}); look at its log"),
                _retry_after_s(response),
            )
        if status in (401, 403):
            return InvalidArgumentError(
                f"{self._base_url} refuses the API key (HTTP {status}); set TROUPE_OPENAI_API_KEY"
            )
        if status == 404:
            return NotFoundError(
                f"{self._base_url} does not know the model or the address ({reply}); the URL must "
                "end in the version, http://host:port/v1, and the model be one of its /models"
            )
        return InvalidArgumentError(f"{self._base_url} refuses the request ({reply})")

    def _unreachable(self, error: Exception) -> UnavailableError:
        return UnavailableError(
            f"no server answers at {self._base_url} ({type(error).__name__}: {error}); start it, "
            "or correct the URL"
        )

    def _stranger(self, why: str) -> TroupeError:
        return TroupeError(
            f"what answers at {self._base_url} is not an OpenAI-compatible server: {why}; give the "
            "URL up to the version, http://host:port/v1"
        )


class _RetryLaterError(Exception):
    """The same call may succeed after ``after_s``; else ``error`` is what the caller gets."""

    def __init__(self, error: TroupeError, after_s: float = 0.0) -> None:
        super().__init__(error.message)
        self.error = error
        self.after_s = after_s


def _text(choice: dict[str, Any]) -> tuple[str, FinishReason]:
    """The text of a choice; "length" means cut off at the token limit."""
    text = choice["message"].get("content") or ""
    return str(text), "length" if choice.get("finish_reason") == "length" else "stop"


def _retry_after_s(response: httpx.Response) -> float:
    """The seconds of a Retry-After header; 0 when there is none or it is a date."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0
