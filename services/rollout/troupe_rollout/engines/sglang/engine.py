"""SglangEngine: the Engine seam on stock SGLang servers.

Owns which server serves which policy, and the validation of requests before they reach one: an id
outside the vocabulary would crash the server. Versions are `lora` and `full`; the life of a
server is `supervisor`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from troupe.candidates import GenerateRequest, Generation
from troupe.errors import (
    InvalidArgumentError,
    OverloadedError,
    PromptTooLongError,
    UnavailableError,
)
from troupe.ids import prompt_digest
from troupe.runtime.engines.broadcast import BroadcastWeights
from troupe.runtime.engines.engine import PolicyState, StagedWeights
from troupe.spec.policy import LoraSpec, PolicySpec
from troupe.tasks.content import ImagePart
from troupe.tasks.family import Message
from troupe_rollout.engines.chat import (
    ChatTemplate,
    check_context,
    check_token_ids,
    prompt_images,
)
from troupe_rollout.engines.sglang.client import SglangClient
from troupe_rollout.engines.sglang.environment import look_at_machine
from troupe_rollout.engines.sglang.files import WorkFolder
from troupe_rollout.engines.sglang.full import FullVersions, Snapshot
from troupe_rollout.engines.sglang.lora import Adapter, LoraVersions
from troupe_rollout.engines.sglang.model import SglangModel, read_base
from troupe_rollout.engines.sglang.plan import ServerGroup, plan_servers
from troupe_rollout.engines.sglang.settings import PREFIX, SglangSettings, load_settings
from troupe_rollout.engines.sglang.supervisor import Supervisor
from troupe_rollout.engines.sglang.translate import (
    cached_tokens,
    candidate_from,
    check_speculation,
    completion_scores,
    completions_body,
    engine_seconds,
    generate_body,
    prefill_body,
    score_body,
    scores_from,
)
from troupe_rollout.engines.sglang.turns import DeviceTurns


@dataclass(frozen=True, slots=True)
class _Served:
    """One policy: its base model, its versions, and the server that has them."""

    base: SglangModel
    versions: LoraVersions | FullVersions
    server: Supervisor


class SglangEngine:
    """See `troupe.runtime.engines.engine.Engine`. Seeds fix draws only with ``deterministic``."""

    name = "sglang"

    def __init__(self, settings: SglangSettings | None = None) -> None:
        self._settings = settings or load_settings()
        self._work = WorkFolder(self._settings.work_dir)
        self._served: dict[str, _Served] = {}
        self._chats: dict[str, ChatTemplate] = {}
        self._servers: list[Supervisor] = []
        self._turns = DeviceTurns(
            is_colocated=self._settings.colocated, drain_timeout_s=self._settings.drain_timeout_s
        )
        self._turn_to_start = asyncio.Lock()
        self._in_flight = 0
        self._is_stopping = False
        self._device = "cpu"
        self._nccl = ""
        self._dtypes: set[str] = set()

    async def start(self, policies: dict[str, PolicySpec]) -> None:
        self._dtypes = {spec.dtype for spec in policies.values()}
        machine = await look_at_machine(self._settings)
        self._device, self._nccl = machine.device, machine.nccl
        bases = {
            policy: await asyncio.to_thread(read_base, spec) for policy, spec in policies.items()
        }
        for policy, spec in policies.items():
            base = bases[policy]
            self._chats[policy] = ChatTemplate(
                base.tokenizer, base.name, spec.chat_template_kwargs, base.vision
            )
        for group in plan_servers(self._settings, machine, policies, bases):
            self._add(group, policies)
        self._turns.of(self._servers)
        if self._settings.colocated:
            for server in self._servers:
                server.prepare()
        else:
            await asyncio.gather(*(server.start() for server in self._servers))

    async def sleep(self) -> None:
        """Give the device to the trainer; see `turns`."""
        self._check_colocated()
        await self._turns.sleep()

    async def wake(self) -> None:
        """Take the device back, with all that is held; see `turns`."""
        self._check_colocated()
        await self._turns.wake()

    def render(self, policy: str, messages: Sequence[Message]) -> list[int]:
        self._of(policy)
        return self._chats[policy].render(messages)

    async def generate(self, request: GenerateRequest[Sequence[int]]) -> Generation:
        served = self._of(request.policy)
        limit = _check_request(served, request)
        if self._settings.speculation != "off":
            check_speculation(request)
        self._admit(request.num_candidates)
        try:
            async with (
                self._turns.user(),
                served.versions.use(request.policy_version, staged_too=False) as version,
            ):
                adapter, client = _adapter(version), served.server.client()
                # The image of a page takes half a second, in which other requests go on.
                body = await asyncio.to_thread(
                    generate_body,
                    served.base,
                    request,
                    limit=limit,
                    adapter=adapter,
                    salt=version.name,
                )
                prefill: list[dict[str, Any]] = []
                if request.num_candidates > 1:  # else each candidate would compute the prompt
                    prefill = await client.generate(prefill_body(body))
                items = await client.generate(body)
        finally:
            self._in_flight -= request.num_candidates
        tag = version.name if isinstance(version, Snapshot) else None
        if len(items) != request.num_candidates:
            raise UnavailableError(
                f"SGLang gave {len(items)} completions for {request.num_candidates}. Try again."
            )
        return Generation(
            request.prompt,
            prompt_digest(request.prompt, [image.digest for image in request.images]),
            [candidate_from(self._chats[request.policy], request, item, tag=tag) for item in items],
            request.policy_version,
            sum(engine_seconds(part) for part in (prefill, items) if part),
            cached_tokens(request, prefill, items),
            prompt_images=prompt_images(request.images, served.base.vision),
        )

    async def score(
        self,
        policy: str,
        policy_version: int,
        token_ids: Sequence[int],
        images: Sequence[ImagePart] = (),
    ) -> list[float]:
        served = self._of(policy)
        base = served.base
        _check_tokens(served, token_ids, minimum=2)
        check_context(
            len(token_ids), context_length=served.server.context_length, model=served.base.name
        )
        async with (
            self._turns.user(waits=False),
            served.versions.use(policy_version, staged_too=True) as version,
        ):
            adapter = _adapter(version)
            body = await asyncio.to_thread(
                score_body, base, token_ids, images, adapter=adapter, salt=version.name
            )
            items = await served.server.client().generate(body)
        return scores_from(token_ids, items[0], base.vision and base.vision.image_token_id)

    async def score_completions(
        self,
        policy: str,
        policy_version: int,
        prompt: Sequence[int],
        completions: Sequence[Sequence[int]],
    ) -> list[list[float]]:
        served = self._of(policy)
        _check_scored(served, prompt, completions)
        async with (
            self._turns.user(),
            served.versions.use(policy_version, staged_too=False) as version,
        ):
            client, adapter = served.server.client(), _adapter(version)
            body = completions_body(prompt, completions, adapter=adapter, salt=version.name)
            if len(completions) > 1:  # else each would compute the prompt
                await client.generate(prefill_body(body | {"input_ids": [[*prompt]]}))
            items = await client.generate(body)
        return completion_scores(prompt, completions, items)

    async def stage(self, weights: StagedWeights) -> str:
        versions = self._of(weights.policy).versions
        async with self._turns.user(waits=False):
            return await versions.stage(weights)

    async def receive(self, weights: BroadcastWeights) -> str:
        """Full weights by torch.distributed; see `troupe.runtime.engines.broadcast`."""
        versions = self._of(weights.policy).versions
        if isinstance(versions, LoraVersions):
            raise InvalidArgumentError(
                f"Policy '{weights.policy}' trains an adapter, and only full weights can come by "
                "torch.distributed. Send the file (TROUPE_TRAINER_WEIGHTS_VIA=grpc or store)."
            )
        async with self._turns.user(waits=False):
            return await versions.receive(weights)

    async def activate(self, policy: str, policy_version: int) -> None:
        versions = self._of(policy).versions
        async with self._turns.user(waits=False):
            await versions.activate(policy_version)

    async def discard(self, policy: str, policy_version: int) -> None:
        versions = self._of(policy).versions
        versions.forget(policy_version)
        if self._turns.state == "awake":  # else loading has no device; a wake, or a request, loads
            async with self._turns.user(waits=False):
                await versions.settle()

    def policies(self) -> list[PolicyState]:
        return [served.versions.state() for served in self._served.values()]

    @property
    def adapter_dtype(self) -> str:
        """Number format in which the servers compute adapters: the base model's."""
        return next(iter(self._dtypes)) if len(self._dtypes) == 1 else "float32"

    @property
    def weight_ranks(self) -> int:
        """Ranks that join a weight group; none with more than one data-parallel copy."""
        return self._settings.tp_size if self._settings.dp_size == 1 else 0

    @property
    def weight_backend(self) -> str:
        """NCCL where the servers run on GPUs."""
        return "nccl" if self._device == "cuda" else "gloo"

    @property
    def weight_nccl(self) -> str:
        """Release of the servers' NCCL; empty without a GPU, or for a server started elsewhere."""
        return "" if self._settings.url else self._nccl

    def num_in_flight(self) -> int:
        return self._in_flight

    def is_ready(self) -> bool:
        is_resting = self._turns.is_colocated and self._turns.state != "awake"
        return bool(self._servers) and (is_resting or all(s.is_ready for s in self._servers))

    async def stop(self) -> None:
        self._is_stopping = True
        await self._turns.close()
        await asyncio.gather(*(served.versions.close() for served in self._served.values()))
        await asyncio.gather(*(server.stop() for server in self._servers))
        self._served.clear()
        self._servers.clear()
        await asyncio.to_thread(self._work.close)

    def _check_colocated(self) -> None:
        if not self._turns.is_colocated:
            raise InvalidArgumentError(
                "The trainer shares its device (TROUPE_TRAINER_COLOCATED) and this engine has one "
                "of its own. Set TROUPE_ROLLOUT_SGLANG_COLOCATED too, or neither."
            )

    def _add(self, group: ServerGroup, policies: dict[str, PolicySpec]) -> None:
        async def restore(client: SglangClient) -> None:
            for policy in group.policies:
                await self._served[policy].versions.restore(client)

        log = self._work.path / f"server-{len(self._servers)}.log"
        turn = self._turn_to_start if group.plan.share_bytes else None
        server = Supervisor(self._settings, group.plan, log=log, restore=restore, turn=turn)
        self._servers.append(server)
        for policy in group.policies:
            versions = self._versions(policy, group.base, policies[policy], server)
            self._served[policy] = _Served(group.base, versions, server)

    def _versions(
        self, policy: str, base: SglangModel, spec: PolicySpec, server: Supervisor
    ) -> LoraVersions | FullVersions:
        if isinstance(spec.train, LoraSpec):
            limit = self._settings.max_versions
            return LoraVersions(policy, base, spec.train, server, self._work, max_versions=limit)
        timeout_s = self._settings.drain_timeout_s
        return FullVersions(policy, base, server, self._work, drain_timeout_s=timeout_s)

    def _of(self, policy: str) -> _Served:
        if (served := self._served.get(policy)) is None:
            raise InvalidArgumentError(
                f"Policy '{policy}' is not served here; this replica serves "
                f"{sorted(self._served)}. Correct the policy, or ask another replica."
            )
        return served

    def _admit(self, num_candidates: int) -> None:
        limit = self._settings.max_in_flight
        if self._is_stopping or self._in_flight + num_candidates > limit:
            raise OverloadedError(
                f"{self._in_flight} candidates are in flight and {num_candidates} more exceed the "
                f"{limit} that this replica takes (TROUPE_ROLLOUT_SGLANG_MAX_IN_FLIGHT), or it is "
                "stopping. Try again later, or add replicas."
            )
        self._in_flight += num_candidates


def _adapter(version: Adapter | Snapshot) -> str | None:
    """The name that a request must carry; full weights need none."""
    return version.name if isinstance(version, Adapter) else None


def _check_tokens(served: _Served, token_ids: Sequence[int], *, minimum: int) -> None:
    base = served.base
    check_token_ids(token_ids, vocab_size=base.shape.vocab, model=base.name, minimum=minimum)


def _check_scored(
    served: _Served, prompt: Sequence[int], completions: Sequence[Sequence[int]]
) -> None:
    for token_ids in (prompt, *completions):
        _check_tokens(served, token_ids, minimum=1)
    longest = len(prompt) + max(map(len, completions))
    check_context(longest, context_length=served.server.context_length, model=served.base.name)


def _check_request(served: _Served, request: GenerateRequest[Sequence[int]]) -> int:
    """The largest number of tokens to sample; raises InvalidArgumentError, PromptTooLongError."""
    _check_tokens(served, request.prompt, minimum=1)
    if request.num_candidates < 1:
        raise InvalidArgumentError("num_candidates is 0; ask for at least 1.")
    context_length = served.server.context_length
    room = context_length - len(request.prompt)
    if room < 1:
        raise PromptTooLongError(
            f"The prompt has {len(request.prompt)} tokens and the context of "
            f"'{served.base.name}' has {context_length} here (the model's, or what the key/value "
            f"cache holds: {PREFIX}MAX_TOTAL_TOKENS). Shorten the prompt."
        )
    return min(request.sampling.max_new_tokens, room)
