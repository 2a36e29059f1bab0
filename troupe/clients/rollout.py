"""Client of a rollout replica: generation, scoring, weights (``episodes.ports.RolloutPort``)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from troupe.api.records.v1.records_pb2 import WeightsManifest
from troupe.api.rollout.v1 import rollout_pb2 as pb
from troupe.api.rollout.v1.rollout_pb2_grpc import RolloutServiceStub
from troupe.candidates import GenerateRequest, Generation, ScoreRequest, generation_from_proto
from troupe.clients import codec
from troupe.clients.channel import Client
from troupe.errors import NotFoundError, UnavailableError
from troupe.runtime.engines.engine import PolicyState
from troupe.tasks.content import ImagePart
from troupe.tasks.family import Observation
from troupe.vision.wire import image_table

CHUNK_BYTES = 4 * 1024 * 1024
"""Size of a weights chunk; servers accept up to 16 MiB."""


@dataclass(frozen=True, slots=True)
class RolloutStatus:
    """What a replica holds and how busy it is."""

    policies: Sequence[PolicyState]
    num_in_flight: int
    model: str
    engine: str
    weight_ranks: int = 0
    weight_backend: str = ""
    adapter_dtype: str = ""
    weight_nccl: str = ""


@dataclass(frozen=True, slots=True)
class WeightsReceipt:
    """A replica's report of a version that it has staged; it measured the times itself.

    ``staged_s`` includes ``received_s``.
    """

    tensor_digest: str
    received_s: float
    staged_s: float


class RolloutClient(Client):
    """One replica at one address.

    ``generate``, ``score_completions`` and ``update_weights`` make one attempt: whether to ask this
    replica again or another one is the caller's choice. ``epoch`` is the trainer's and is sent with
    each change of weights: a replica refuses the change once it knows a successor (0: no epoch).
    """

    peer = "rollout"

    def __init__(self, address: str, *, retry_for_s: float = 2.0, epoch: int = 0) -> None:
        super().__init__(address, retry_for_s=retry_for_s)
        self._stub = RolloutServiceStub(self._channel)
        self._epoch = epoch

    async def generate(
        self, request: GenerateRequest[Observation], *, timeout_s: float
    ) -> Generation:
        """Candidates for an agent's observation, by one version of one policy."""
        message = codec.generate_request_to_proto(request)
        answer = await self._call(
            "Generate",
            lambda left_s: self._stub.Generate(message, timeout=left_s),
            timeout_s=timeout_s,
            retries=False,
        )
        return generation_from_proto(answer)

    async def score(
        self,
        policy: str,
        policy_version: int,
        token_ids: Sequence[int],
        images: Sequence[ImagePart] = (),
        *,
        timeout_s: float = 60.0,
    ) -> list[float]:
        """Logprob of every token but the first, at temperature 1; 0 for an image's placeholders."""
        request = pb.ScoreTokensRequest(
            policy=policy,
            policy_version=policy_version,
            token_ids=token_ids,
            images=image_table(images),
        )
        answer = await self._call(
            "ScoreTokens",
            lambda left_s: self._stub.ScoreTokens(request, timeout=left_s),
            timeout_s=timeout_s,
        )
        return list(answer.logprobs)

    async def score_completions(
        self, request: ScoreRequest, *, timeout_s: float
    ) -> list[Sequence[float]]:
        """Logprob of each token of each completion, at temperature 1; one attempt."""
        message = pb.ScoreTokensRequest(
            policy=request.policy,
            policy_version=request.policy_version,
            token_ids=request.prompt_token_ids,
            completions=[pb.TokenPrompt(token_ids=ids) for ids in request.completions],
        )
        answer = await self._call(
            "ScoreTokens",
            lambda left_s: self._stub.ScoreTokens(message, timeout=left_s),
            timeout_s=timeout_s,
            retries=False,
        )
        ends = list(accumulate(len(ids) for ids in request.completions))
        if len(answer.logprobs) != ends[-1]:
            raise UnavailableError(
                f"The replica gave {len(answer.logprobs)} log probabilities for {ends[-1]} tokens: "
                "it is of a version of Troupe that scores no completions. Run the same version "
                "everywhere."
            )
        return [answer.logprobs[begin:end] for begin, end in pairwise([0, *ends])]

    async def update_weights(
        self, manifest: WeightsManifest, path: Path, timeout_s: float = 300.0
    ) -> str:
        """Stream a safetensors file and stage it; the digest of the tensors now staged.

        Raises: as ``send_weights``.
        """
        return (await self.send_weights(manifest, path, timeout_s)).tensor_digest

    async def send_weights(
        self,
        manifest: WeightsManifest,
        source: Path | pb.StoredWeights | pb.BroadcastWeights,
        timeout_s: float = 300.0,
    ) -> WeightsReceipt:
        """Stage a version: stream its file, or send its location or the group that carries it.

        Raises:
            NotFoundError: there is no such file.
            WeightsRejectedError: the weights did not arrive as the manifest says.
        """
        if isinstance(source, Path) and not await asyncio.to_thread(source.is_file):
            raise NotFoundError(f"There is no weights file {source}; export the weights first.")
        answer = await self._call(
            "UpdateWeights",
            lambda left_s: self._stub.UpdateWeights(
                _parts(manifest, source, self._epoch), timeout=left_s
            ),
            timeout_s=timeout_s,
            retries=False,
        )
        return WeightsReceipt(
            tensor_digest=answer.tensor_digest,
            received_s=answer.received_s,
            staged_s=answer.staged_s,
        )

    async def activate(
        self,
        policy: str,
        policy_version: int,
        *,
        tensor_digest: str = "",
        timeout_s: float = 60.0,
    ) -> None:
        """Serve a staged version, only if it has ``tensor_digest`` where one is set. Idempotent.

        Raises:
            VersionNotLoadedError: it is not staged, or its number has other weights.
        """
        request = pb.ActivateWeightsRequest(
            policy=policy,
            policy_version=policy_version,
            epoch=self._epoch,
            tensor_digest=tensor_digest,
        )
        await self._call(
            "ActivateWeights",
            lambda left_s: self._stub.ActivateWeights(request, timeout=left_s),
            timeout_s=timeout_s,
        )

    async def discard(self, policy: str, policy_version: int, *, timeout_s: float = 60.0) -> None:
        """Forget a staged or an old version. Idempotent."""
        request = pb.DiscardWeightsRequest(
            policy=policy, policy_version=policy_version, epoch=self._epoch
        )
        await self._call(
            "DiscardWeights",
            lambda left_s: self._stub.DiscardWeights(request, timeout=left_s),
            timeout_s=timeout_s,
        )

    async def sleep(self, *, timeout_s: float = 60.0) -> None:
        """Have it give the device to the trainer. Idempotent.

        Raises:
            OverloadedError: requests are in flight; try again.
        """
        request = pb.SleepRequest(epoch=self._epoch)
        await self._call(
            "Sleep",
            lambda left_s: self._stub.Sleep(request, timeout=left_s),
            timeout_s=timeout_s,
        )

    async def wake(self, *, timeout_s: float = 60.0) -> None:
        """Have it take the device back and serve. Idempotent; a late call joins the first."""
        request = pb.WakeRequest(epoch=self._epoch)
        await self._call(
            "Wake",
            lambda left_s: self._stub.Wake(request, timeout=left_s),
            timeout_s=timeout_s,
        )

    async def status(self, *, timeout_s: float = 5.0) -> RolloutStatus:
        """What is loaded and how busy the engine is."""
        answer = await self._call(
            "GetStatus",
            lambda left_s: self._stub.GetStatus(pb.GetStatusRequest(), timeout=left_s),
            timeout_s=timeout_s,
        )
        return RolloutStatus(
            policies=[codec.policy_state_from_proto(p) for p in answer.policies],
            num_in_flight=answer.num_in_flight,
            model=answer.model,
            engine=answer.engine,
            weight_ranks=answer.weight_ranks,
            weight_backend=answer.weight_backend,
            adapter_dtype=answer.adapter_dtype,
            weight_nccl=answer.weight_nccl,
        )


async def _parts(
    manifest: WeightsManifest, source: Path | pb.StoredWeights | pb.BroadcastWeights, epoch: int = 0
) -> AsyncIterator[pb.UpdateWeightsRequest]:
    yield pb.UpdateWeightsRequest(manifest=manifest, epoch=epoch)
    if isinstance(source, pb.StoredWeights):
        yield pb.UpdateWeightsRequest(stored=source)
        return
    if isinstance(source, pb.BroadcastWeights):
        yield pb.UpdateWeightsRequest(broadcast=source)
        return
    offset = 0
    with source.open("rb") as file:
        while data := await asyncio.to_thread(file.read, CHUNK_BYTES):
            # No CRC: each tensor's digest is checked, and a second pass costs as much as sending.
            yield pb.UpdateWeightsRequest(chunk=pb.WeightsChunk(offset_bytes=offset, data=data))
            offset += len(data)
