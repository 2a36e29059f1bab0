from troupe.api.records.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnvironmentRef(_message.Message):
    __slots__ = ("name", "params_json", "reward_json", "bundle_digest", "bundle_facts_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMS_JSON_FIELD_NUMBER: _ClassVar[int]
    REWARD_JSON_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FACTS_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    params_json: str
    reward_json: str
    bundle_digest: str
    bundle_facts_json: str
    def __init__(self, name: _Optional[str] = ..., params_json: _Optional[str] = ..., reward_json: _Optional[str] = ..., bundle_digest: _Optional[str] = ..., bundle_facts_json: _Optional[str] = ...) -> None: ...

class TaskRef(_message.Message):
    __slots__ = ("split", "index")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    split: str
    index: int
    def __init__(self, split: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("environment", "split", "start_index", "page_size")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    START_INDEX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    environment: EnvironmentRef
    split: str
    start_index: int
    page_size: int
    def __init__(self, environment: _Optional[_Union[EnvironmentRef, _Mapping]] = ..., split: _Optional[str] = ..., start_index: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class TaskEntry(_message.Message):
    __slots__ = ("task_id", "ref", "payload")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    ref: TaskRef
    payload: bytes
    def __init__(self, task_id: _Optional[str] = ..., ref: _Optional[_Union[TaskRef, _Mapping]] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "total_size")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskEntry]
    total_size: int
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskEntry, _Mapping]]] = ..., total_size: _Optional[int] = ...) -> None: ...

class ObservationMessage(_message.Message):
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

class Observation(_message.Message):
    __slots__ = ("messages", "images", "max_new_tokens", "tools")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ObservationMessage]
    images: _containers.RepeatedCompositeFieldContainer[_records_pb2.ImageData]
    max_new_tokens: int
    tools: _containers.RepeatedCompositeFieldContainer[_records_pb2.Tool]
    def __init__(self, messages: _Optional[_Iterable[_Union[ObservationMessage, _Mapping]]] = ..., images: _Optional[_Iterable[_Union[_records_pb2.ImageData, _Mapping]]] = ..., max_new_tokens: _Optional[int] = ..., tools: _Optional[_Iterable[_Union[_records_pb2.Tool, _Mapping]]] = ...) -> None: ...

class ResetRequest(_message.Message):
    __slots__ = ("environment", "task", "observe_agents", "request_text")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_AGENTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TEXT_FIELD_NUMBER: _ClassVar[int]
    environment: EnvironmentRef
    task: TaskRef
    observe_agents: _containers.RepeatedScalarFieldContainer[str]
    request_text: str
    def __init__(self, environment: _Optional[_Union[EnvironmentRef, _Mapping]] = ..., task: _Optional[_Union[TaskRef, _Mapping]] = ..., observe_agents: _Optional[_Iterable[str]] = ..., request_text: _Optional[str] = ...) -> None: ...

class ResetResponse(_message.Message):
    __slots__ = ("state", "observations", "task_id", "seal")
    class ObservationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Observation
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Observation, _Mapping]] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    observations: _containers.MessageMap[str, Observation]
    task_id: str
    seal: bytes
    def __init__(self, state: _Optional[bytes] = ..., observations: _Optional[_Mapping[str, Observation]] = ..., task_id: _Optional[str] = ..., seal: _Optional[bytes] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("environment", "state", "agent", "actions", "observe_agents", "seal", "cut_actions")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_AGENTS_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CUT_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    environment: EnvironmentRef
    state: bytes
    agent: str
    actions: _containers.RepeatedScalarFieldContainer[str]
    observe_agents: _containers.RepeatedScalarFieldContainer[str]
    seal: bytes
    cut_actions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, environment: _Optional[_Union[EnvironmentRef, _Mapping]] = ..., state: _Optional[bytes] = ..., agent: _Optional[str] = ..., actions: _Optional[_Iterable[str]] = ..., observe_agents: _Optional[_Iterable[str]] = ..., seal: _Optional[bytes] = ..., cut_actions: _Optional[_Iterable[int]] = ...) -> None: ...

class StepOutcome(_message.Message):
    __slots__ = ("state", "team_reward", "local_rewards", "is_done", "is_success", "info_json", "observations", "seal")
    class LocalRewardsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ObservationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Observation
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Observation, _Mapping]] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    TEAM_REWARD_FIELD_NUMBER: _ClassVar[int]
    LOCAL_REWARDS_FIELD_NUMBER: _ClassVar[int]
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    IS_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    INFO_JSON_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    team_reward: float
    local_rewards: _containers.ScalarMap[str, float]
    is_done: bool
    is_success: bool
    info_json: str
    observations: _containers.MessageMap[str, Observation]
    seal: bytes
    def __init__(self, state: _Optional[bytes] = ..., team_reward: _Optional[float] = ..., local_rewards: _Optional[_Mapping[str, float]] = ..., is_done: _Optional[bool] = ..., is_success: _Optional[bool] = ..., info_json: _Optional[str] = ..., observations: _Optional[_Mapping[str, Observation]] = ..., seal: _Optional[bytes] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[StepOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[StepOutcome, _Mapping]]] = ...) -> None: ...

class ObserveRequest(_message.Message):
    __slots__ = ("environment", "state", "observe_agents", "seal")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_AGENTS_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    environment: EnvironmentRef
    state: bytes
    observe_agents: _containers.RepeatedScalarFieldContainer[str]
    seal: bytes
    def __init__(self, environment: _Optional[_Union[EnvironmentRef, _Mapping]] = ..., state: _Optional[bytes] = ..., observe_agents: _Optional[_Iterable[str]] = ..., seal: _Optional[bytes] = ...) -> None: ...

class ObserveResponse(_message.Message):
    __slots__ = ("observations",)
    class ObservationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Observation
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Observation, _Mapping]] = ...) -> None: ...
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.MessageMap[str, Observation]
    def __init__(self, observations: _Optional[_Mapping[str, Observation]] = ...) -> None: ...

class PlayDryRunRequest(_message.Message):
    __slots__ = ("environment", "spec_json", "num_tasks")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    NUM_TASKS_FIELD_NUMBER: _ClassVar[int]
    environment: EnvironmentRef
    spec_json: str
    num_tasks: int
    def __init__(self, environment: _Optional[_Union[EnvironmentRef, _Mapping]] = ..., spec_json: _Optional[str] = ..., num_tasks: _Optional[int] = ...) -> None: ...

class PlayDryRunResponse(_message.Message):
    __slots__ = ("episodes_json",)
    EPISODES_JSON_FIELD_NUMBER: _ClassVar[int]
    episodes_json: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, episodes_json: _Optional[_Iterable[str]] = ...) -> None: ...
