"""RolloutService on the wire: proto to domain and back, deadlines, and nothing else."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import lru_cache
from types import TracebackType
from typing import Any, Self

import grpc.aio
from prometheus_client import Counter, Histogram

from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1.rollout_pb2_grpc import RolloutServiceServicer
from troupe.api.router.v1.router_pb2 import Assignment
from troupe.candidates import GenerateRequest, Generation, generation_to_proto
from troupe.clients import codec
from troupe.errors import (
    DeadlineError,
    InvalidArgumentError,
    UnavailableError,
)
from troupe.runtime.engines.engine import Engine
from troupe.runtime.engines.rendering import rendered
from troupe.runtime.faults import reached
from troupe.runtime.serving.deadlines import callers_s
from troupe.runtime.telemetry import metrics
from troupe.runtime.telemetry.tracing import span
from troupe.spec.deadlines import moving_s
from troupe.tasks.content import ImagePart, check_count
from troupe.tasks.family import observed_images, tools_of
from troupe.vision.wire import image_from_proto
from troupe_rollout.settings import RolloutSettings
from troupe_rollout.staging import StagingArea
from troupe_rollout.weight_receiver import WeightReceiver

_Context = grpc.aio.ServicerContext[Any, Any]


class Calls:
    """The calls in flight: each is a ``with`` block of it. Refuses them unless ``is_open``."""

    def __init__(self) -> None:
        self._num_calls = 0
        self.is_open = False
        self.idle = asyncio.Event()
        self.idle.set()

    def __enter__(self) -> Self:
        if not self.is_open:
            raise UnavailableError(
                "This rollout replica has no model loaded yet, or is stopping. Ask another one, "
                "or try again."
            )
        self._num_calls += 1
        self.idle.clear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._num_calls -= 1
        if self._num_calls == 0:
            self.idle.set()


class RolloutServicer(RolloutServiceServicer):
    """Answers for one engine. Refuses work with UNAVAILABLE until `open` and after `wait_idle`.

    ``tell`` is called when the answering version changes.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        engine: Engine,
        staging: StagingArea,
        *,
        tell: Callable[[], None] | None = None,
    ) -> None:
        self._tell = tell
        self._settings = settings
        self._engine = engine
        self._moving_s = moving_s(settings.max_weights_bytes)
        self._loading_s = settings.call_timeout_s + self._moving_s
        """For calls that may have to load a version first."""
        self._intake = WeightReceiver(engine, staging, lease_s=settings.push_lease_s)
        self._calls = Calls()
        self._model = self._job_id = ""

    def open(self, model: str, job_id: str) -> None:
        """The engine has loaded ``model`` for ``job_id``: take work."""
        self._model = model
        self._job_id = self._intake.job_id = job_id
        metrics.ROLLOUT_IN_FLIGHT.labels(job_id).set_function(self._engine.num_in_flight)
        self._calls.is_open = True

    def hear(self, assignment: Assignment) -> None:
        """Apply a heartbeat's reply: which trainers may send weights."""
        self._intake.refuse_before(assignment.trainer_epoch)
        if assignment.trainer_epochs:
            self._intake.refuse_before_each(assignment.trainer_epochs)

    async def wait_idle(self) -> None:
        """Refuse new work and wait until every call in flight is answered."""
        self._calls.is_open = False
        await self._calls.idle.wait()
        await self._intake.close()

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
        with self._calls:
            async with _deadline("Generate", callers_s(context, self._settings.call_timeout_s)):
                prompt, images, may_call = await self._prompt(request)
                domain_request = GenerateRequest(
                    request.policy,
                    request.policy_version,
                    prompt,
                    request.num_candidates,
                    sampling,
                    seed,
                    images,
                    may_call,
                    request.follows_updates,
                )
                with span("engine.generate", policy=request.policy, n=request.num_candidates):
                    generation = await self._engine.generate(domain_request)
        # Counted while the answer is on its way.
        asyncio.get_running_loop().call_soon(_count, self._job_id, request.policy, generation)
        return generation_to_proto(generation)

    async def ScoreTokens(  # noqa: N802
        self, request: pb.ScoreTokensRequest, context: _Context
    ) -> pb.ScoreTokensResponse:
        if request.completions:
            return await self._score_completions(request, context)
        with self._calls:
            self._intake.renew(request.policy, request.policy_version)
            async with _deadline("ScoreTokens", _left_s(context, self._loading_s)):
                check_count(request.images)
                logprobs = await self._engine.score(
                    request.policy,
                    request.policy_version,
                    list(request.token_ids),
                    [image_from_proto(image) for image in request.images],
                )
        reached("rollout.canary_scored", request.policy_version)
        return pb.ScoreTokensResponse(logprobs=logprobs)

    async def _score_completions(
        self, request: pb.ScoreTokensRequest, context: _Context
    ) -> pb.ScoreTokensResponse:
        """A teacher's scores of a policy's samples."""
        completions = [list(completion.token_ids) for completion in request.completions]
        most = self._settings.max_candidates
        if len(completions) > most or not all(completions) or not request.token_ids:
            raise InvalidArgumentError(
                f"{len(completions)} completions are to be scored after a prompt of "
                f"{len(request.token_ids)} tokens; give 1 to {most}, and no empty ones.",
                pointer="/completions",
            )
        if request.images:
            raise InvalidArgumentError(
                "Completions are scored after prompts of text alone. Leave the images out.",
                pointer="/images",
            )
        with self._calls:
            async with _deadline("ScoreTokens", callers_s(context, self._loading_s)):
                scores = await self._engine.score_completions(
                    request.policy, request.policy_version, list(request.token_ids), completions
                )
        reached("rollout.completions_scored")
        return pb.ScoreTokensResponse(logprobs=[x for scored in scores for x in scored])

    async def UpdateWeights(  # noqa: N802
        self, request_iterator: AsyncIterator[pb.UpdateWeightsRequest], context: _Context
    ) -> pb.UpdateWeightsResponse:
        limit_s = self._settings.upload_timeout_s + self._moving_s
        with self._calls:
            async with _deadline("UpdateWeights", _left_s(context, limit_s)):
                return await self._intake.update(aiter(request_iterator), timeout_s=limit_s)

    async def ActivateWeights(  # noqa: N802
        self, request: pb.ActivateWeightsRequest, context: _Context
    ) -> pb.ActivateWeightsResponse:
        with self._calls:
            async with _deadline("ActivateWeights", _left_s(context, self._loading_s)):
                await self._intake.activate(
                    request.policy,
                    request.policy_version,
                    epoch=request.epoch,
                    tensor_digest=request.tensor_digest,
                )
        if self._tell is not None:
            self._tell()
        return pb.ActivateWeightsResponse(policy_version=request.policy_version)

    async def DiscardWeights(  # noqa: N802
        self, request: pb.DiscardWeightsRequest, context: _Context
    ) -> pb.DiscardWeightsResponse:
        with self._calls:
            limit_s = self._settings.call_timeout_s
            async with _deadline("DiscardWeights", _left_s(context, limit_s)):
                await self._intake.discard(
                    request.policy, request.policy_version, epoch=request.epoch
                )
        return pb.DiscardWeightsResponse()

    async def Sleep(  # noqa: N802
        self, request: pb.SleepRequest, context: _Context
    ) -> pb.SleepResponse:
        with self._calls:
            async with _deadline("Sleep", _left_s(context, self._loading_s)):
                await self._intake.sleep(epoch=request.epoch)
        return pb.SleepResponse()

    async def Wake(  # noqa: N802
        self, request: pb.WakeRequest, context: _Context
    ) -> pb.WakeResponse:
        with self._calls:
            async with _deadline("Wake", _left_s(context, self._loading_s)):
                await self._intake.wake(epoch=request.epoch)
        if self._tell is not None:
            self._tell()
        return pb.WakeResponse()

    async def GetStatus(  # noqa: N802
        self, request: pb.GetStatusRequest, context: _Context
    ) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(
            policies=[codec.policy_state_to_proto(state) for state in self._engine.policies()],
            num_in_flight=self._engine.num_in_flight(),
            model=self._model,
            engine=self._engine.name,
            weight_ranks=getattr(self._engine, "weight_ranks", 0),
            weight_backend=getattr(self._engine, "weight_backend", ""),
            adapter_dtype=getattr(self._engine, "adapter_dtype", ""),
            weight_nccl=getattr(self._engine, "weight_nccl", ""),
        )

    async def _prompt(
        self, request: pb.GenerateRequest
    ) -> tuple[list[int], tuple[ImagePart, ...], bool]:
        """Token ids, the images that placeholders among them stand for, whether it offers tools."""
        kind = request.WhichOneof("prompt")
        if kind == "tokens":
            return list(request.tokens.token_ids), (), False
        if kind == "chat":
            seen = codec.chat_from_proto(request.chat)
            ids = await rendered(self._engine, request.policy, seen)
            return ids, observed_images(seen), bool(tools_of(seen))
        raise InvalidArgumentError("A Generate request needs a prompt: chat or tokens.")


@contextlib.asynccontextmanager
async def _deadline(method: str, timeout_s: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise DeadlineError(
            f"{method} did not end within {timeout_s:.1f} s. Give it more time, or add replicas."
        ) from error


def _left_s(context: _Context, limit_s: float) -> float:
    return min(limit_s, callers_s(context, limit_s))


def _count(job_id: str, policy: str, generation: Generation) -> None:
    prompt, sampled, seconds = _counters(job_id, policy)
    prompt.inc(generation.num_prompt_tokens)
    sampled.inc(generation.num_sampled_tokens)
    seconds.observe(generation.engine_s)


@lru_cache(maxsize=64)
def _counters(job_id: str, policy: str) -> tuple[Counter, Counter, Histogram]:
    """Of a policy: its prompt tokens, sampled tokens and seconds; looked up once."""
    tokens = metrics.ROLLOUT_TOKENS
    return (
        tokens.labels(job_id, policy, "prompt"),
        tokens.labels(job_id, policy, "sampled"),
        metrics.ROLLOUT_SECONDS.labels(job_id, policy),
    )
