from troupe.api.records.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChatMessage(_message.Message):
    __slots__ = ("role", "content", "parts", "tool_calls")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    parts: _containers.RepeatedCompositeFieldContainer[_records_pb2.ContentPart]
    tool_calls: _containers.RepeatedCompositeFieldContainer[_records_pb2.ToolCall]
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[_records_pb2.ContentPart, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[_records_pb2.ToolCall, _Mapping]]] = ...) -> None: ...

class ChatPrompt(_message.Message):
    __slots__ = ("messages", "images", "tools")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    images: _containers.RepeatedCompositeFieldContainer[_records_pb2.ImageData]
    tools: _containers.RepeatedCompositeFieldContainer[_records_pb2.Tool]
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., images: _Optional[_Iterable[_Union[_records_pb2.ImageData, _Mapping]]] = ..., tools: _Optional[_Iterable[_Union[_records_pb2.Tool, _Mapping]]] = ...) -> None: ...

class TokenPrompt(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "max_new_tokens", "stop", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., max_new_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., seed: _Optional[int] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("request_id", "policy", "policy_version", "chat", "tokens", "num_candidates", "sampling", "follows_updates")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_UPDATES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    policy: str
    policy_version: int
    chat: ChatPrompt
    tokens: TokenPrompt
    num_candidates: int
    sampling: SamplingParams
    follows_updates: bool
    def __init__(self, request_id: _Optional[str] = ..., policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., chat: _Optional[_Union[ChatPrompt, _Mapping]] = ..., tokens: _Optional[_Union[TokenPrompt, _Mapping]] = ..., num_candidates: _Optional[int] = ..., sampling: _Optional[_Union[SamplingParams, _Mapping]] = ..., follows_updates: _Optional[bool] = ...) -> None: ...

class GeneratedCandidate(_message.Message):
    __slots__ = ("token_ids", "logprobs", "text", "finish_reason", "version_spans")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    VERSION_SPANS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    text: str
    finish_reason: _records_pb2.FinishReason
    version_spans: _containers.RepeatedCompositeFieldContainer[_records_pb2.VersionSpan]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[float]] = ..., text: _Optional[str] = ..., finish_reason: _Optional[_Union[_records_pb2.FinishReason, str]] = ..., version_spans: _Optional[_Iterable[_Union[_records_pb2.VersionSpan, _Mapping]]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("prompt", "candidates", "policy_version", "engine_s", "num_cached_tokens")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_S_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt: _records_pb2.Prompt
    candidates: _containers.RepeatedCompositeFieldContainer[GeneratedCandidate]
    policy_version: int
    engine_s: float
    num_cached_tokens: int
    def __init__(self, prompt: _Optional[_Union[_records_pb2.Prompt, _Mapping]] = ..., candidates: _Optional[_Iterable[_Union[GeneratedCandidate, _Mapping]]] = ..., policy_version: _Optional[int] = ..., engine_s: _Optional[float] = ..., num_cached_tokens: _Optional[int] = ...) -> None: ...

class ScoreTokensRequest(_message.Message):
    __slots__ = ("policy", "policy_version", "token_ids", "images", "completions")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    policy_version: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    images: _containers.RepeatedCompositeFieldContainer[_records_pb2.ImageData]
    completions: _containers.RepeatedCompositeFieldContainer[TokenPrompt]
    def __init__(self, policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., images: _Optional[_Iterable[_Union[_records_pb2.ImageData, _Mapping]]] = ..., completions: _Optional[_Iterable[_Union[TokenPrompt, _Mapping]]] = ...) -> None: ...

class ScoreTokensResponse(_message.Message):
    __slots__ = ("logprobs",)
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class UpdateWeightsRequest(_message.Message):
    __slots__ = ("manifest", "chunk", "stored", "broadcast", "epoch")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    manifest: _records_pb2.WeightsManifest
    chunk: WeightsChunk
    stored: StoredWeights
    broadcast: BroadcastWeights
    epoch: int
    def __init__(self, manifest: _Optional[_Union[_records_pb2.WeightsManifest, _Mapping]] = ..., chunk: _Optional[_Union[WeightsChunk, _Mapping]] = ..., stored: _Optional[_Union[StoredWeights, _Mapping]] = ..., broadcast: _Optional[_Union[BroadcastWeights, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class StoredWeights(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class BroadcastWeights(_message.Message):
    __slots__ = ("host", "port", "group", "world_size", "rank_offset", "backend", "is_formed", "bucket_bytes")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RANK_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    IS_FORMED_FIELD_NUMBER: _ClassVar[int]
    BUCKET_BYTES_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    group: str
    world_size: int
    rank_offset: int
    backend: str
    is_formed: bool
    bucket_bytes: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., group: _Optional[str] = ..., world_size: _Optional[int] = ..., rank_offset: _Optional[int] = ..., backend: _Optional[str] = ..., is_formed: _Optional[bool] = ..., bucket_bytes: _Optional[int] = ...) -> None: ...

class WeightsChunk(_message.Message):
    __slots__ = ("offset_bytes", "data", "crc32")
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    offset_bytes: int
    data: bytes
    crc32: int
    def __init__(self, offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32: _Optional[int] = ...) -> None: ...

class UpdateWeightsResponse(_message.Message):
    __slots__ = ("tensor_digest", "staged_s", "received_s")
    TENSOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STAGED_S_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_S_FIELD_NUMBER: _ClassVar[int]
    tensor_digest: str
    staged_s: float
    received_s: float
    def __init__(self, tensor_digest: _Optional[str] = ..., staged_s: _Optional[float] = ..., received_s: _Optional[float] = ...) -> None: ...

class ActivateWeightsRequest(_message.Message):
    __slots__ = ("policy", "policy_version", "epoch", "tensor_digest")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TENSOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    policy: str
    policy_version: int
    epoch: int
    tensor_digest: str
    def __init__(self, policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., epoch: _Optional[int] = ..., tensor_digest: _Optional[str] = ...) -> None: ...

class ActivateWeightsResponse(_message.Message):
    __slots__ = ("policy_version",)
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    policy_version: int
    def __init__(self, policy_version: _Optional[int] = ...) -> None: ...

class DiscardWeightsRequest(_message.Message):
    __slots__ = ("policy", "policy_version", "epoch")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    policy: str
    policy_version: int
    epoch: int
    def __init__(self, policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class DiscardWeightsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SleepRequest(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class SleepResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WakeRequest(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class WakeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PolicyStatus(_message.Message):
    __slots__ = ("policy", "active_version", "tensor_digest", "loaded_versions", "staged_versions")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_VERSION_FIELD_NUMBER: _ClassVar[int]
    TENSOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LOADED_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    STAGED_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    active_version: int
    tensor_digest: str
    loaded_versions: _containers.RepeatedScalarFieldContainer[int]
    staged_versions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, policy: _Optional[str] = ..., active_version: _Optional[int] = ..., tensor_digest: _Optional[str] = ..., loaded_versions: _Optional[_Iterable[int]] = ..., staged_versions: _Optional[_Iterable[int]] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("policies", "num_in_flight", "model", "engine", "weight_ranks", "weight_backend", "adapter_dtype", "weight_nccl")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_RANKS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BACKEND_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_DTYPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_NCCL_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[PolicyStatus]
    num_in_flight: int
    model: str
    engine: str
    weight_ranks: int
    weight_backend: str
    adapter_dtype: str
    weight_nccl: str
    def __init__(self, policies: _Optional[_Iterable[_Union[PolicyStatus, _Mapping]]] = ..., num_in_flight: _Optional[int] = ..., model: _Optional[str] = ..., engine: _Optional[str] = ..., weight_ranks: _Optional[int] = ..., weight_backend: _Optional[str] = ..., adapter_dtype: _Optional[str] = ..., weight_nccl: _Optional[str] = ...) -> None: ...
