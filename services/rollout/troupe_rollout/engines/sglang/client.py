"""One SGLang server over HTTP: its calls as methods, its failures as TroupeErrors.

Owns the wire to SGLang and nothing about versions. Connections die with the server, so each life of
the server gets a new client.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import orjson

from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    OverloadedError,
    TroupeError,
    UnavailableError,
    WeightsRejectedError,
)
from troupe.runtime.weights import TensorSum
from troupe.runtime.weights.group import TORCH_DTYPES, WeightGroup
from troupe.vision.names import served_name
from troupe_rollout.engines.sglang.settings import VERSION

CONNECT_TIMEOUT_S = 5.0
_CALLERS_DEADLINE = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
_PROBE = {"input_ids": [0, 0], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}


class SglangClient:
    """Calls of one server at ``url``, each with a deadline."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self.url = url
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
            headers={"content-type": "application/json"},
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections; calls in flight fail as unavailable."""
        await self._http.aclose()

    async def is_healthy(self, timeout_s: float) -> bool:
        """The HTTP server answers and says that it serves."""
        try:
            answer = await self._http.get("/health", timeout=timeout_s)
        except (httpx.HTTPError, RuntimeError):
            return False
        return answer.status_code == 200

    async def probe(self) -> None:
        """Sample one greedy token, which proves that the scheduler works end to end."""
        await self._post("/generate", _PROBE)

    async def room(self) -> int:
        """Tokens that a prompt and its completion may have together, by context and cache.

        What is longer SGLang cuts without a word (`init_req_max_new_tokens`), or aborts.

        Raises:
            InvalidArgumentError: it does not say so; a server of another release.
        """
        info = await self._get("/server_info")
        try:
            whole_pages = info["max_total_num_tokens"] - 2 * (info["page_size"] or 1)
            return min(info["max_req_input_len"] - 1, whole_pages)
        except KeyError as error:
            raise InvalidArgumentError(
                f"SGLang at {self.url} does not say {error} at /server_info; start one of release "
                f"{VERSION}."
            ) from error

    async def generate(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The completions of one /generate call, in index order.

        It has the deadline of its caller, which bounds every call of an engine: how long
        completions may take depends on the job.
        """
        answer = await self._request("POST", "/generate", body, timeout=_CALLERS_DEADLINE)
        return answer if isinstance(answer, list) else [answer]

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Raises WeightsRejectedError when SGLang refuses it."""
        await self._manage("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})

    async def unload_adapter(self, name: str) -> None:
        """Unload; returns after the adapter's last request. A missing adapter is fine.

        The list of adapters is not asked: one whose unload failed is no longer in it, and is in
        memory until an unload of its name succeeds.
        """
        try:
            await self._manage("/unload_lora_adapter", {"lora_name": name})
        except WeightsRejectedError as error:
            if "does not exist" not in error.message:
                raise

    async def adapters(self) -> set[str]:
        """Names of the loaded adapters."""
        answer = await self._get("/v1/models")
        return {model["id"] for model in answer["data"] if model.get("parent")}

    async def load_weights(self, folder: Path, tag: str) -> None:
        """Replace the weights and empty the prefix cache. Nothing may be in flight.

        Raises WeightsRejectedError; then the weights in memory are unknown.
        """
        await self._manage(
            "/update_weights_from_disk",
            {"model_path": str(folder), "weight_version": tag, "flush_cache": True},
        )

    async def release_memory(self) -> None:
        """Free the device's memory: weights, key/value cache, graphs. Nothing may be in flight."""
        await self._post("/release_memory_occupation", {})

    async def resume_memory(self) -> None:
        """Take the memory again. Its contents are unknown, unless SGLang keeps a copy."""
        await self._post("/resume_memory_occupation", {})

    async def join_group(self, group: WeightGroup) -> None:
        """Have every rank of the server join; returns when the group is complete."""
        await self._manage(
            "/init_weights_update_group",
            {
                "master_address": group.host,
                "master_port": group.port,
                "rank_offset": group.rank_offset,
                "world_size": group.world_size,
                "group_name": group.name,
                "backend": group.backend,
            },
        )

    async def leave_group(self, group: WeightGroup) -> None:
        """Leave the group."""
        await self._manage("/destroy_weights_update_group", {"group_name": group.name})

    async def begin_update(self) -> None:
        """Open a session for replacing weights. No request may be in flight."""
        await self._manage("/begin_weight_update", {})

    async def receive_weights(
        self, group: WeightGroup, tensors: Sequence[TensorSum], tag: str
    ) -> None:
        """Take these tensors as rank 0 broadcasts them, and empty the prefix cache."""
        await self._manage(
            "/update_weights_from_distributed",
            {
                "names": [served_name(tensor.name) for tensor in tensors],
                "dtypes": [TORCH_DTYPES[tensor.dtype] for tensor in tensors],
                "shapes": [list(tensor.shape) for tensor in tensors],
                "group_name": group.name,
                "weight_version": tag,
                "flush_cache": True,
            },
        )

    async def end_update(self) -> None:
        """Close the session."""
        await self._manage("/end_weight_update", {})

    async def checksum(self) -> str:
        """SGLang's digest over the tensors in memory, of all ranks."""
        answer = await self._manage("/weights_checker", {"action": "checksum"})
        checksums = answer.get("per_engine_checksum") or [
            rank["per_gpu_checksum"] for rank in answer["ranks"]
        ]
        return str(checksums)

    async def _manage(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await self._post(path, body)
        except InvalidArgumentError as error:
            raise WeightsRejectedError(f"SGLang refuses {path}: {error.message}") from error
        if not answer.get("success", True):
            raise WeightsRejectedError(f"SGLang refuses {path}: {_message(answer)}")
        return answer

    async def _get(self, path: str) -> Any:
        return await self._request("GET", path, None)

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._request("POST", path, body)

    async def _request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        *,
        timeout: httpx.Timeout | None = None,
    ) -> Any:
        timeout, content = timeout or self._http.timeout, _encoded(body)
        try:
            answer = await self._http.request(method, path, content=content, timeout=timeout)
        except httpx.TimeoutException as error:
            raise DeadlineError(
                f"SGLang at {self.url} did not answer {path} in time ({type(error).__name__}). "
                "Raise TROUPE_ROLLOUT_SGLANG_CALL_TIMEOUT_S, or look at the server's log."
            ) from error
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: closed while waiting
            raise UnavailableError(
                f"SGLang at {self.url} went away during {path} ({type(error).__name__}: {error}). "
                "It is restarted; ask another replica, or try again."
            ) from error
        if answer.status_code == 200:
            return _decoded(path, answer.content)
        raise _refusal(path, answer)


def _encoded(body: dict[str, Any] | None) -> bytes | None:
    """JSON in half the time that httpx takes, or less: bodies and answers are lists of numbers."""
    return None if body is None else orjson.dumps(body)


def _decoded(path: str, content: bytes) -> Any:
    """The answer; raises UnavailableError where it is no JSON."""
    try:
        return orjson.loads(content) if content else {}
    except orjson.JSONDecodeError as error:
        raise UnavailableError(
            f"SGLang answered {path} with no JSON ({error}). Try again."
        ) from error


def _refusal(path: str, answer: httpx.Response) -> TroupeError:
    try:
        message = _message(answer.json())
    except ValueError:
        message = answer.text[:300]
    words = f"SGLang answered {path} with {answer.status_code}: {message}"
    if answer.status_code in (400, 404, 422):
        return InvalidArgumentError(words)
    if answer.status_code == 429:
        return OverloadedError(f"{words}. Try again later, or add replicas.")
    return UnavailableError(f"{words}. Try again; see the server's log.")


def _message(answer: Any) -> str:
    if isinstance(answer, dict):
        inner = answer.get("error") or answer
        if isinstance(inner, dict):
            return str(inner.get("message") or inner.get("error_message") or inner)[:600]
        return str(inner)[:600]
    return str(answer)[:600]
