"""CpuEngine: the Engine seam on transformers and torch, in this process.

Owns validation of requests and the life of versions; computing happens on one worker thread and
building of new versions on another, so that receiving weights never stops generation.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from troupe.candidates import Candidate, GenerateRequest, Generation
from troupe.errors import InvalidArgumentError, OverloadedError, PromptTooLongError
from troupe.ids import prompt_digest
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.engines.engine import PolicyState, StagedWeights
from troupe.runtime.serving.memory import keep_freed_memory, return_freed_memory
from troupe.spec.policy import PolicySpec
from troupe.tasks.content import ImagePart
from troupe.tasks.family import Message
from troupe_rollout.engines.chat import (
    ChatTemplate,
    check_context,
    check_token_ids,
    prompt_images,
    refuse_images,
    stop_detector,
)
from troupe_rollout.engines.cpu.batcher import Batcher
from troupe_rollout.engines.cpu.blocks import WeightBlocks
from troupe_rollout.engines.cpu.images import positions_of
from troupe_rollout.engines.cpu.model import CpuModel, load_base
from troupe_rollout.engines.cpu.receive import Memberships
from troupe_rollout.engines.cpu.rows import Job
from troupe_rollout.engines.cpu.score import score_completions, score_tokens
from troupe_rollout.engines.cpu.settings import CpuEngineSettings
from troupe_rollout.engines.cpu.versions import Slot
from troupe_rollout.engines.cpu.weights import build_module, check_full, load_tensors
from troupe_rollout.engines.cpu.worker import Worker
from troupe_rollout.engines.versions import VersionTable, held_digest

STOP_TIMEOUT_S = 4.0


class CpuEngine:
    """An `Engine` in this process. Same seed, same completions, whatever else runs."""

    name = "cpu"
    weight_ranks = 1
    weight_backend = "gloo"
    adapter_dtype = "float32"  # merged in it, whatever the base's

    def __init__(self, settings: CpuEngineSettings | None = None) -> None:
        self._settings = settings or CpuEngineSettings()
        if self._settings.device == "cpu":
            keep_freed_memory()
        self._worker = Worker(torch_threads=self._settings.torch_threads)
        self._stager = ThreadPoolExecutor(
            1, "cpu-stage", initializer=torch.set_num_threads, initargs=(1,)
        )
        self._bases: dict[str, CpuModel] = {}
        self._chats: dict[str, ChatTemplate] = {}
        self._tables: dict[str, VersionTable[Slot]] = {}
        self._blocks: dict[str, WeightBlocks] = {}
        self._memberships = Memberships()
        self._in_flight = 0
        self._is_stopping = False

    async def start(self, policies: dict[str, PolicySpec]) -> None:
        loaded: dict[tuple[str, str], CpuModel] = {}
        loop = asyncio.get_running_loop()
        for policy, spec in policies.items():
            key = (spec.model, spec.dtype)
            if key not in loaded:
                loaded[key] = await loop.run_in_executor(
                    self._stager, load_base, spec, self._settings.device
                )
            self._bases[policy] = loaded[key]
            self._chats[policy] = ChatTemplate(
                loaded[key].tokenizer, spec.model, spec.chat_template_kwargs, loaded[key].vision
            )
            self._tables[policy] = VersionTable[Slot](policy, self._settings.max_versions)
            self._blocks[policy] = WeightBlocks(loaded[key].device)
        self._worker.start()
        for base in loaded.values():
            prompt = [0] * min(32, base.context_length)
            await asyncio.wrap_future(
                self._worker.call(lambda base=base, ids=prompt: score_tokens(base.module, ids))
            )
        for key, base in loaded.items():
            kinds = {p.train.kind for p in policies.values() if (p.model, p.dtype) == key}
            if kinds == {"full"}:
                base.drop_weights()
        if self._settings.device == "cpu":
            return_freed_memory()

    def render(self, policy: str, messages: Sequence[Message]) -> list[int]:
        self._base(policy)
        return self._chats[policy].render(messages)

    async def generate(self, request: GenerateRequest[Sequence[int]]) -> Generation:
        base = self._base(request.policy)
        job = self._job(base, request)
        slot = self._tables[request.policy].serving(request.policy_version)
        self._admit(request.num_candidates)
        try:
            self._worker.submit(slot.lane, job)
            candidates = await asyncio.wrap_future(job.future)
        finally:
            job.is_cancelled = True
            self._in_flight -= request.num_candidates
        version, candidates = _by_newest(candidates)
        return Generation(
            request.prompt,
            prompt_digest(request.prompt, [image.digest for image in request.images]),
            [self._with_text(request, candidate) for candidate in candidates],
            version,
            job.compute_s,
            # A prompt is computed once for all its candidates, and not cached afterwards.
            num_cached_tokens=(request.num_candidates - 1) * len(request.prompt),
            prompt_images=prompt_images(request.images, base.vision),
        )

    def _with_text(
        self, request: GenerateRequest[Sequence[int]], candidate: Candidate
    ) -> Candidate:
        chat, stop = self._chats[request.policy], request.sampling.stop
        text = chat.answer_text(candidate.token_ids, stop, calls=request.may_call)
        return replace(candidate, text=text)

    async def score(
        self,
        policy: str,
        policy_version: int,
        token_ids: Sequence[int],
        images: Sequence[ImagePart] = (),
    ) -> list[float]:
        base = self._base(policy)
        _check_tokens(base, token_ids, minimum=2)
        check_context(len(token_ids), context_length=base.context_length, model=base.path)
        _ = _offset(base, token_ids, images)
        module = self._tables[policy].scoring(policy_version).module
        return await asyncio.wrap_future(
            self._worker.call(lambda: score_tokens(module, token_ids, images, base.vision))
        )

    async def score_completions(
        self,
        policy: str,
        policy_version: int,
        prompt: Sequence[int],
        completions: Sequence[Sequence[int]],
    ) -> list[list[float]]:
        base = self._base(policy)
        _check_scored(base, prompt, completions)
        module = self._tables[policy].serving(policy_version).module
        return await asyncio.wrap_future(
            self._worker.call(lambda: score_completions(module, prompt, completions))
        )

    async def stage(self, weights: StagedWeights) -> str:
        self._base(weights.policy)
        return await self._keep(weights, lambda: load_tensors(weights.path), self._stager)

    async def receive(self, weights: BroadcastWeights) -> str:
        """Full weights by torch.distributed; see `troupe.runtime.engines.broadcast`."""
        base = self._base(weights.policy)
        where = f"Weights of policy '{weights.policy}' version {weights.policy_version}"
        check_full(base, weights.tensors, where)
        announced = {tensor.name: tensor.digest for tensor in weights.tensors}
        staged = StagedWeights(
            weights.policy, weights.policy_version, "full", Path(), "", announced
        )
        # On a thread of its own: it waits for the trainer, and other versions are built meanwhile.
        return await self._keep(staged, lambda: self._memberships.receive(weights), None)

    async def _keep(
        self,
        weights: StagedWeights,
        tensors: Callable[[], Generator[tuple[str, Tensor]]],
        thread: ThreadPoolExecutor | None,
    ) -> str:
        base, table = self._base(weights.policy), self._tables[weights.policy]
        table.make_room(weights.policy_version)
        loop = asyncio.get_running_loop()
        slot = await loop.run_in_executor(thread, self._build, base, weights, tensors)
        if not table.holds(weights.policy_version, slot.tensor_digest):
            table.stage(slot)
        return slot.tensor_digest

    async def activate(self, policy: str, policy_version: int) -> None:
        self._base(policy)
        table = self._tables[policy]
        older = [slot.lane for slot in table.held() if slot.policy_version < policy_version]
        table.activate(policy_version)
        lane = table.serving(policy_version).lane
        await asyncio.wrap_future(self._worker.hand_over(older, lane))

    async def discard(self, policy: str, policy_version: int) -> None:
        self._base(policy)
        self._tables[policy].discard(policy_version)

    def policies(self) -> list[PolicyState]:
        return [table.state() for table in self._tables.values()]

    def num_in_flight(self) -> int:
        return self._in_flight

    def is_ready(self) -> bool:
        return bool(self._bases) and not self._is_stopping

    async def stop(self) -> None:
        self._is_stopping = True
        await asyncio.to_thread(self._worker.stop, STOP_TIMEOUT_S)
        self._stager.shutdown(wait=False, cancel_futures=True)
        self._memberships.close()
        self._tables.clear()
        self._bases.clear()

    def _base(self, policy: str) -> CpuModel:
        if (base := self._bases.get(policy)) is None:
            raise InvalidArgumentError(
                f"Policy '{policy}' is not served here; this replica serves "
                f"{sorted(self._bases)}. Correct the policy, or ask another replica."
            )
        return base

    def _admit(self, num_candidates: int) -> None:
        limit = self._settings.max_in_flight
        if self._is_stopping or self._in_flight + num_candidates > limit:
            raise OverloadedError(
                f"{self._in_flight} candidates are in flight and {num_candidates} more exceed the "
                f"{limit} that this replica takes (TROUPE_ROLLOUT_MAX_IN_FLIGHT), or it is "
                "stopping. Try again later, or add replicas."
            )
        self._in_flight += num_candidates

    def _job(self, base: CpuModel, request: GenerateRequest[Sequence[int]]) -> Job:
        prompt = tuple(request.prompt)
        _check_tokens(base, prompt, minimum=1)
        room = base.context_length - len(prompt)
        if room < 1:
            raise PromptTooLongError(
                f"The prompt has {len(prompt)} tokens and the context of '{base.path}' has "
                f"{base.context_length}. Shorten the prompt."
            )
        if request.num_candidates < 1:
            raise InvalidArgumentError("num_candidates is 0; ask for at least 1.")
        limit = min(request.sampling.max_new_tokens, room)
        cells = request.num_candidates * (len(prompt) + limit)
        if cells > self._max_cells(base):
            raise InvalidArgumentError(
                f"{request.num_candidates} candidates of up to {len(prompt) + limit} tokens need "
                f"more key/value memory than TROUPE_ROLLOUT_MAX_KV_MIB="
                f"{self._settings.max_kv_mib}. Ask for fewer or shorter ones, or raise it."
            )
        detector = stop_detector(base.tokenizer, request.sampling.stop)
        return Job(
            prompt,
            request.num_candidates,
            request.sampling,
            limit,
            request.seed,
            detector,
            tuple(request.images),
            _offset(base, request.prompt, request.images),
            request.follows_updates,
        )

    def _max_cells(self, base: CpuModel) -> int:
        return self._settings.max_kv_mib * 2**20 // base.kv_bytes_per_token

    def _build(
        self,
        base: CpuModel,
        weights: StagedWeights,
        tensors: Callable[[], Generator[tuple[str, Tensor]]],
    ) -> Slot:
        with contextlib.closing(tensors()) as each:
            module, sums = build_module(base, weights, each, self._blocks[weights.policy])
        digest = held_digest(weights, sums)
        lane = Batcher(
            module,
            base.end_token_ids,
            base.vision,
            version=weights.policy_version,
            device=self._settings.device,
            max_rows=self._settings.max_rows,
            max_prefill_tokens=self._settings.max_prefill_tokens,
            max_cells=self._max_cells(base),
        )
        return Slot(weights.policy, weights.policy_version, digest, module, lane)


def _by_newest(candidates: Sequence[Candidate]) -> tuple[int, list[Candidate]]:
    """The newest version that sampled a token, and the candidates with spans where others did."""
    newest = max(version for c in candidates for version, _ in c.version_spans)
    return newest, [
        replace(c, version_spans=()) if {v for v, _ in c.version_spans} == {newest} else c
        for c in candidates
    ]


def _check_tokens(base: CpuModel, token_ids: Sequence[int], *, minimum: int) -> None:
    check_token_ids(token_ids, vocab_size=base.vocab_size, model=base.path, minimum=minimum)


def _check_scored(
    base: CpuModel, prompt: Sequence[int], completions: Sequence[Sequence[int]]
) -> None:
    for token_ids in (prompt, *completions):
        _check_tokens(base, token_ids, minimum=1)
    longest = len(prompt) + max(map(len, completions))
    check_context(longest, context_length=base.context_length, model=base.path)


def _offset(base: CpuModel, prompt: Sequence[int], images: Sequence[ImagePart]) -> int:
    """What a token after the prompt adds to its column for its position.

    Raises:
        InvalidArgumentError: the images are not those of the prompt's placeholders.
    """
    if base.vision is None:
        refuse_images(images, base.path)
        return 0
    positions = positions_of(prompt, images, base.vision)
    return int(positions.max()) + 1 - len(prompt)
