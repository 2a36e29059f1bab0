"""RolloutService on the wire: proto to domain and back, deadlines, and nothing else."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from pathlib import Path
from typing import Any, cast

import grpc.aio

from services.rollout.settings import RolloutSettings
from services.rollout.staging import StagingArea
from troupe.api.records.v1.records_pb2 import Prompt, WeightsManifest
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1.rollout_pb2_grpc import RolloutServiceServicer
from troupe.clients import codec
from troupe.engines.contract import Engine, EngineRequest, EngineResult, StagedWeights
from troupe.errors import (
    ConflictError,
    DeadlineError,
    InvalidArgumentError,
    UnavailableError,
    WeightsRejectedError,
)
from troupe.ids import prompt_digest
from troupe.telemetry import metrics

_Context = grpc.aio.ServicerContext[Any, Any]


class RolloutServicer(RolloutServiceServicer):
    """Answers for one engine. Refuses work with UNAVAILABLE until `open` and after `wait_idle`."""

    def __init__(self, settings: RolloutSettings, engine: Engine, staging: StagingArea) -> None:
        self._settings = settings
        self._engine = engine
        self._staging = staging
        self._is_open = False
        self._model = ""
        self._num_calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self, model: str) -> None:
        """The engine has loaded ``model``: take work."""
        self._model = model
        self._is_open = True

    async def wait_idle(self) -> None:
        """Refuse new work and wait until every call in flight is answered."""
        self._is_open = False
        await self._idle.wait()

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, context: _Context
    ) -> pb.GenerateResponse:
        sampling, seed = codec.sampling_from_proto(request.sampling)
        if not 1 <= request.num_candidates <= self._settings.max_candidates:
            raise InvalidArgumentError(
                f"num_candidates is {request.num_candidates}; give 1 to "
                f"{self._settings.max_candidates}.",
                pointer="/num_candidates",
            )
        with self._call():
            prompt = self._prompt(request)
            engine_request = EngineRequest(
                request.policy,
                request.policy_version,
                prompt,
                request.num_candidates,
                sampling,
                seed,
            )
            async with self._deadline(context, "Generate"):
                result = await self._engine.generate(engine_request)
        _count(request.policy, len(prompt), result)
        return _response(prompt, result)

    async def ScoreTokens(  # noqa: N802
        self, request: pb.ScoreTokensRequest, context: _Context
    ) -> pb.ScoreTokensResponse:
        with self._call():
            async with self._deadline(context, "ScoreTokens"):
                logprobs = await self._engine.score(
                    request.policy, request.policy_version, list(request.token_ids)
                )
        return pb.ScoreTokensResponse(logprobs=logprobs)

    async def UpdateWeights(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.UpdateWeightsRequest], context: _Context
    ) -> pb.UpdateWeightsResponse:
        began = time.monotonic()
        limit_s = self._settings.upload_timeout_s
        with self._call():
            async with (
                self._deadline(context, "UpdateWeights", limit_s),
                self._staging.receive(aiter(request_iterator)) as (manifest, path),
            ):
                digest = await self._stage(manifest, path)
        staged_s = time.monotonic() - began
        metrics.ROLLOUT_WEIGHTS_BYTES.labels(manifest.policy).inc(manifest.size_bytes)
        metrics.ROLLOUT_WEIGHTS_SECONDS.labels("stage").observe(staged_s)
        return pb.UpdateWeightsResponse(tensor_digest=digest, staged_s=staged_s)

    async def ActivateWeights(  # noqa: N802
        self, request: pb.ActivateWeightsRequest, context: _Context
    ) -> pb.ActivateWeightsResponse:
        began = time.monotonic()
        with self._call():
            async with self._deadline(context, "ActivateWeights"):
                await self._engine.activate(request.policy, request.policy_version)
        metrics.ROLLOUT_WEIGHTS_SECONDS.labels("activate").observe(time.monotonic() - began)
        metrics.ROLLOUT_VERSION.labels(request.policy).set(request.policy_version)
        return pb.ActivateWeightsResponse(policy_version=request.policy_version)

    async def DiscardWeights(  # noqa: N802
        self, request: pb.DiscardWeightsRequest, context: _Context
    ) -> pb.DiscardWeightsResponse:
        with self._call():
            async with self._deadline(context, "DiscardWeights"):
                await self._engine.discard(request.policy, request.policy_version)
        return pb.DiscardWeightsResponse()

    async def GetStatus(  # noqa: N802
        self, request: pb.GetStatusRequest, context: _Context
    ) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(
            policies=[codec.policy_state_to_proto(state) for state in self._engine.policies()],
            num_in_flight=self._engine.num_in_flight(),
            model=self._model,
            engine=self._engine.name,
        )

    def _prompt(self, request: pb.GenerateRequest) -> list[int]:
        kind = request.WhichOneof("prompt")
        if kind == "tokens":
            return list(request.tokens.token_ids)
        if kind == "chat":
            return self._engine.render(request.policy, codec.chat_from_proto(request.chat))
        raise InvalidArgumentError("A Generate request needs a prompt: chat or tokens.")

    async def _stage(self, manifest: WeightsManifest, path: Path) -> str:
        staged = StagedWeights(
            policy=manifest.policy,
            policy_version=manifest.policy_version,
            kind="lora" if manifest.kind == "lora" else "full",
            path=path,
            adapter_config_json=manifest.adapter_config_json,
        )
        digest = await self._engine.stage(staged)
        if digest != manifest.tensor_digest:
            with contextlib.suppress(ConflictError):
                await self._engine.discard(manifest.policy, manifest.policy_version)
            raise WeightsRejectedError(
                f"Weights of policy '{manifest.policy}' version {manifest.policy_version} are "
                f"refused: the engine holds tensors with digest {digest} and the manifest says "
                f"{manifest.tensor_digest}. The serving version is unchanged; send them again."
            )
        return digest

    @contextlib.contextmanager
    def _call(self) -> Generator[None]:
        if not self._is_open:
            raise UnavailableError(
                "This rollout replica has no model loaded yet, or is stopping. Ask another one, "
                "or try again."
            )
        self._num_calls += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_calls -= 1
            if self._num_calls == 0:
                self._idle.set()
            metrics.ROLLOUT_IN_FLIGHT.set(self._engine.num_in_flight())

    @contextlib.asynccontextmanager
    async def _deadline(
        self, context: _Context, method: str, limit_s: float | None = None
    ) -> AsyncGenerator[None]:
        left_s = cast("float | None", context.time_remaining())
        limit_s = limit_s or self._settings.call_timeout_s
        timeout_s = limit_s if left_s is None else min(limit_s, left_s)
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as error:
            raise DeadlineError(
                f"{method} did not end within {timeout_s:.1f} s. Give it more time, or add "
                "replicas."
            ) from error


def _response(prompt: list[int], result: EngineResult) -> pb.GenerateResponse:
    return pb.GenerateResponse(
        prompt=Prompt(digest=prompt_digest(prompt), token_ids=prompt),
        candidates=[
            pb.GeneratedCandidate(
                token_ids=candidate.token_ids,
                logprobs=candidate.logprobs,
                text=candidate.text,
                finish_reason=codec.finish_reason_to_proto(candidate.finish_reason),
            )
            for candidate in result.candidates
        ],
        policy_version=result.policy_version,
        engine_s=result.engine_s,
    )


def _count(policy: str, num_prompt_tokens: int, result: EngineResult) -> None:
    sampled = sum(len(candidate.token_ids) for candidate in result.candidates)
    metrics.ROLLOUT_TOKENS.labels(policy, "prompt").inc(num_prompt_tokens)
    metrics.ROLLOUT_TOKENS.labels(policy, "sampled").inc(sampled)
    metrics.ROLLOUT_SECONDS.labels(policy).observe(result.engine_s)
