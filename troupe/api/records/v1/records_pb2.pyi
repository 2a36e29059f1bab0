from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RoundKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUND_KIND_UNSPECIFIED: _ClassVar[RoundKind]
    ROUND_KIND_TRAIN: _ClassVar[RoundKind]
    ROUND_KIND_EVAL: _ClassVar[RoundKind]

class GroupKey(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_KEY_UNSPECIFIED: _ClassVar[GroupKey]
    GROUP_KEY_OBSERVATION: _ClassVar[GroupKey]
    GROUP_KEY_TASK: _ClassVar[GroupKey]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
ROUND_KIND_UNSPECIFIED: RoundKind
ROUND_KIND_TRAIN: RoundKind
ROUND_KIND_EVAL: RoundKind
GROUP_KEY_UNSPECIFIED: GroupKey
GROUP_KEY_OBSERVATION: GroupKey
GROUP_KEY_TASK: GroupKey
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason

class Ticket(_message.Message):
    __slots__ = ("ticket_id", "job_id", "round_id", "kind", "step", "split", "task_index", "policy_versions", "opened_at", "omits_tokens", "occurrence")
    class PolicyVersionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    TASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    OMITS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    job_id: str
    round_id: str
    kind: RoundKind
    step: int
    split: str
    task_index: int
    policy_versions: _containers.ScalarMap[str, int]
    opened_at: float
    omits_tokens: bool
    occurrence: int
    def __init__(self, ticket_id: _Optional[str] = ..., job_id: _Optional[str] = ..., round_id: _Optional[str] = ..., kind: _Optional[_Union[RoundKind, str]] = ..., step: _Optional[int] = ..., split: _Optional[str] = ..., task_index: _Optional[int] = ..., policy_versions: _Optional[_Mapping[str, int]] = ..., opened_at: _Optional[float] = ..., omits_tokens: _Optional[bool] = ..., occurrence: _Optional[int] = ...) -> None: ...

class ContentPart(_message.Message):
    __slots__ = ("text", "image_digest")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    text: str
    image_digest: str
    def __init__(self, text: _Optional[str] = ..., image_digest: _Optional[str] = ...) -> None: ...

class ImageData(_message.Message):
    __slots__ = ("digest", "width", "height", "png")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    PNG_FIELD_NUMBER: _ClassVar[int]
    digest: str
    width: int
    height: int
    png: bytes
    def __init__(self, digest: _Optional[str] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., png: _Optional[bytes] = ...) -> None: ...

class ImageRef(_message.Message):
    __slots__ = ("digest", "width", "height", "grid_h", "grid_w")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    GRID_H_FIELD_NUMBER: _ClassVar[int]
    GRID_W_FIELD_NUMBER: _ClassVar[int]
    digest: str
    width: int
    height: int
    grid_h: int
    grid_w: int
    def __init__(self, digest: _Optional[str] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., grid_h: _Optional[int] = ..., grid_w: _Optional[int] = ...) -> None: ...

class Tool(_message.Message):
    __slots__ = ("name", "description", "parameters_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    parameters_json: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., parameters_json: _Optional[str] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("name", "arguments_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    arguments_json: str
    def __init__(self, name: _Optional[str] = ..., arguments_json: _Optional[str] = ...) -> None: ...

class PromptMessage(_message.Message):
    __slots__ = ("role", "content", "parts", "tool_calls")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: str
    parts: _containers.RepeatedCompositeFieldContainer[ContentPart]
    tool_calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    def __init__(self, role: _Optional[str] = ..., content: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[ContentPart, _Mapping]]] = ..., tool_calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ...) -> None: ...

class Prompt(_message.Message):
    __slots__ = ("digest", "token_ids", "messages", "images", "tools")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    digest: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    messages: _containers.RepeatedCompositeFieldContainer[PromptMessage]
    images: _containers.RepeatedCompositeFieldContainer[ImageRef]
    tools: _containers.RepeatedCompositeFieldContainer[Tool]
    def __init__(self, digest: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., messages: _Optional[_Iterable[_Union[PromptMessage, _Mapping]]] = ..., images: _Optional[_Iterable[_Union[ImageRef, _Mapping]]] = ..., tools: _Optional[_Iterable[_Union[Tool, _Mapping]]] = ...) -> None: ...

class VersionSpan(_message.Message):
    __slots__ = ("policy_version", "num_tokens")
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    policy_version: int
    num_tokens: int
    def __init__(self, policy_version: _Optional[int] = ..., num_tokens: _Optional[int] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("index", "token_ids", "rollout_logprobs", "text", "finish_reason", "policy_version", "prompt_digest", "reward", "team_reward", "local_rewards", "is_chosen", "is_done", "is_success", "info_json", "turn", "trajectory", "generate_s", "env_s", "is_baseline", "joint_observation", "version_spans", "terms", "num_tokens", "teacher_logprobs")
    class LocalRewardsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TermsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TEAM_REWARD_FIELD_NUMBER: _ClassVar[int]
    LOCAL_REWARDS_FIELD_NUMBER: _ClassVar[int]
    IS_CHOSEN_FIELD_NUMBER: _ClassVar[int]
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    IS_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    TRAJECTORY_FIELD_NUMBER: _ClassVar[int]
    GENERATE_S_FIELD_NUMBER: _ClassVar[int]
    ENV_S_FIELD_NUMBER: _ClassVar[int]
    IS_BASELINE_FIELD_NUMBER: _ClassVar[int]
    JOINT_OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_SPANS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEACHER_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    index: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    rollout_logprobs: _containers.RepeatedScalarFieldContainer[float]
    text: str
    finish_reason: FinishReason
    policy_version: int
    prompt_digest: str
    reward: float
    team_reward: float
    local_rewards: _containers.ScalarMap[str, float]
    is_chosen: bool
    is_done: bool
    is_success: bool
    info_json: str
    turn: int
    trajectory: int
    generate_s: float
    env_s: float
    is_baseline: bool
    joint_observation: str
    version_spans: _containers.RepeatedCompositeFieldContainer[VersionSpan]
    terms: _containers.ScalarMap[str, float]
    num_tokens: int
    teacher_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, index: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., rollout_logprobs: _Optional[_Iterable[float]] = ..., text: _Optional[str] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., policy_version: _Optional[int] = ..., prompt_digest: _Optional[str] = ..., reward: _Optional[float] = ..., team_reward: _Optional[float] = ..., local_rewards: _Optional[_Mapping[str, float]] = ..., is_chosen: _Optional[bool] = ..., is_done: _Optional[bool] = ..., is_success: _Optional[bool] = ..., info_json: _Optional[str] = ..., turn: _Optional[int] = ..., trajectory: _Optional[int] = ..., generate_s: _Optional[float] = ..., env_s: _Optional[float] = ..., is_baseline: _Optional[bool] = ..., joint_observation: _Optional[str] = ..., version_spans: _Optional[_Iterable[_Union[VersionSpan, _Mapping]]] = ..., terms: _Optional[_Mapping[str, float]] = ..., num_tokens: _Optional[int] = ..., teacher_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("group_id", "job_id", "step", "task_id", "agent", "turn", "policy", "policy_version", "key", "prompts", "candidates", "ticket_id", "node", "num_prompt_tokens", "num_cached_tokens", "term_weights", "images", "lead_returns")
    class TermWeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TERM_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    LEAD_RETURNS_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    job_id: str
    step: int
    task_id: str
    agent: str
    turn: int
    policy: str
    policy_version: int
    key: GroupKey
    prompts: _containers.RepeatedCompositeFieldContainer[Prompt]
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    ticket_id: str
    node: str
    num_prompt_tokens: int
    num_cached_tokens: int
    term_weights: _containers.ScalarMap[str, float]
    images: _containers.RepeatedCompositeFieldContainer[ImageData]
    lead_returns: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, group_id: _Optional[str] = ..., job_id: _Optional[str] = ..., step: _Optional[int] = ..., task_id: _Optional[str] = ..., agent: _Optional[str] = ..., turn: _Optional[int] = ..., policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., key: _Optional[_Union[GroupKey, str]] = ..., prompts: _Optional[_Iterable[_Union[Prompt, _Mapping]]] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., ticket_id: _Optional[str] = ..., node: _Optional[str] = ..., num_prompt_tokens: _Optional[int] = ..., num_cached_tokens: _Optional[int] = ..., term_weights: _Optional[_Mapping[str, float]] = ..., images: _Optional[_Iterable[_Union[ImageData, _Mapping]]] = ..., lead_returns: _Optional[_Iterable[float]] = ...) -> None: ...

class Episode(_message.Message):
    __slots__ = ("episode_id", "job_id", "round_id", "kind", "step", "task_id", "is_success", "success_fraction", "num_turns", "team_return", "groups", "wall_s", "num_tokens", "dropped_reason", "num_redraws", "busy", "program_ends", "images", "rewards")
    class ProgramEndsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class RewardsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    EPISODE_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    IS_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FRACTION_FIELD_NUMBER: _ClassVar[int]
    NUM_TURNS_FIELD_NUMBER: _ClassVar[int]
    TEAM_RETURN_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_REDRAWS_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_ENDS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    episode_id: str
    job_id: str
    round_id: str
    kind: RoundKind
    step: int
    task_id: str
    is_success: bool
    success_fraction: float
    num_turns: int
    team_return: float
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    wall_s: float
    num_tokens: int
    dropped_reason: str
    num_redraws: int
    busy: BusyTimes
    program_ends: _containers.ScalarMap[str, int]
    images: _containers.RepeatedCompositeFieldContainer[ImageData]
    rewards: _containers.ScalarMap[str, float]
    def __init__(self, episode_id: _Optional[str] = ..., job_id: _Optional[str] = ..., round_id: _Optional[str] = ..., kind: _Optional[_Union[RoundKind, str]] = ..., step: _Optional[int] = ..., task_id: _Optional[str] = ..., is_success: _Optional[bool] = ..., success_fraction: _Optional[float] = ..., num_turns: _Optional[int] = ..., team_return: _Optional[float] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., wall_s: _Optional[float] = ..., num_tokens: _Optional[int] = ..., dropped_reason: _Optional[str] = ..., num_redraws: _Optional[int] = ..., busy: _Optional[_Union[BusyTimes, _Mapping]] = ..., program_ends: _Optional[_Mapping[str, int]] = ..., images: _Optional[_Iterable[_Union[ImageData, _Mapping]]] = ..., rewards: _Optional[_Mapping[str, float]] = ...) -> None: ...

class BusyTimes(_message.Message):
    __slots__ = ("generate", "env", "draws")
    GENERATE_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    generate: _containers.RepeatedScalarFieldContainer[float]
    env: _containers.RepeatedScalarFieldContainer[float]
    draws: _containers.RepeatedCompositeFieldContainer[DrawTime]
    def __init__(self, generate: _Optional[_Iterable[float]] = ..., env: _Optional[_Iterable[float]] = ..., draws: _Optional[_Iterable[_Union[DrawTime, _Mapping]]] = ...) -> None: ...

class DrawTime(_message.Message):
    __slots__ = ("replica", "began_at", "ended_at")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    BEGAN_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    replica: str
    began_at: float
    ended_at: float
    def __init__(self, replica: _Optional[str] = ..., began_at: _Optional[float] = ..., ended_at: _Optional[float] = ...) -> None: ...

class WeightsManifest(_message.Message):
    __slots__ = ("policy", "policy_version", "kind", "adapter_config_json", "size_bytes", "sha256", "tensor_digest", "tensors", "job_id")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    TENSOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    policy: str
    policy_version: int
    kind: str
    adapter_config_json: str
    size_bytes: int
    sha256: str
    tensor_digest: str
    tensors: _containers.RepeatedCompositeFieldContainer[TensorEntry]
    job_id: str
    def __init__(self, policy: _Optional[str] = ..., policy_version: _Optional[int] = ..., kind: _Optional[str] = ..., adapter_config_json: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., tensor_digest: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[TensorEntry, _Mapping]]] = ..., job_id: _Optional[str] = ...) -> None: ...

class TensorEntry(_message.Message):
    __slots__ = ("name", "dtype", "shape", "digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    digest: str
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., digest: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("job_id", "type", "occurred_at", "source", "data_json", "event_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    type: str
    occurred_at: float
    source: str
    data_json: str
    event_id: str
    def __init__(self, job_id: _Optional[str] = ..., type: _Optional[str] = ..., occurred_at: _Optional[float] = ..., source: _Optional[str] = ..., data_json: _Optional[str] = ..., event_id: _Optional[str] = ...) -> None: ...
