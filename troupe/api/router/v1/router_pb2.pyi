from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPLICA_KIND_UNSPECIFIED: _ClassVar[ReplicaKind]
    REPLICA_KIND_ROLLOUT: _ClassVar[ReplicaKind]
    REPLICA_KIND_ENV: _ClassVar[ReplicaKind]
    REPLICA_KIND_TRAINER: _ClassVar[ReplicaKind]
REPLICA_KIND_UNSPECIFIED: ReplicaKind
REPLICA_KIND_ROLLOUT: ReplicaKind
REPLICA_KIND_ENV: ReplicaKind
REPLICA_KIND_TRAINER: ReplicaKind

class ReplicaPolicy(_message.Message):
    __slots__ = ("policy", "active_version", "loaded_versions", "tensor_digest")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOADED_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    policy: str
    active_version: int
    loaded_versions: _containers.RepeatedScalarFieldContainer[int]
    tensor_digest: str
    def __init__(self, policy: _Optional[str] = ..., active_version: _Optional[int] = ..., loaded_versions: _Optional[_Iterable[int]] = ..., tensor_digest: _Optional[str] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("replica_id", "kind", "address", "job_id", "incarnation", "policies", "num_in_flight", "is_serving", "seen_at", "admin_address")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    IS_SERVING_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    kind: ReplicaKind
    address: str
    job_id: str
    incarnation: str
    policies: _containers.RepeatedCompositeFieldContainer[ReplicaPolicy]
    num_in_flight: int
    is_serving: bool
    seen_at: float
    admin_address: str
    def __init__(self, replica_id: _Optional[str] = ..., kind: _Optional[_Union[ReplicaKind, str]] = ..., address: _Optional[str] = ..., job_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., policies: _Optional[_Iterable[_Union[ReplicaPolicy, _Mapping]]] = ..., num_in_flight: _Optional[int] = ..., is_serving: _Optional[bool] = ..., seen_at: _Optional[float] = ..., admin_address: _Optional[str] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("job_id", "spec_json", "policies", "run_dir", "trainer_epoch", "trainer_epochs")
    class TrainerEpochsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    RUN_DIR_FIELD_NUMBER: _ClassVar[int]
    TRAINER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRAINER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    spec_json: str
    policies: _containers.RepeatedScalarFieldContainer[str]
    run_dir: str
    trainer_epoch: int
    trainer_epochs: _containers.ScalarMap[str, int]
    def __init__(self, job_id: _Optional[str] = ..., spec_json: _Optional[str] = ..., policies: _Optional[_Iterable[str]] = ..., run_dir: _Optional[str] = ..., trainer_epoch: _Optional[int] = ..., trainer_epochs: _Optional[_Mapping[str, int]] = ...) -> None: ...

class RegisterReplicaRequest(_message.Message):
    __slots__ = ("replica",)
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    replica: Replica
    def __init__(self, replica: _Optional[_Union[Replica, _Mapping]] = ...) -> None: ...

class RegisterReplicaResponse(_message.Message):
    __slots__ = ("assignment", "lease_ttl_s")
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_S_FIELD_NUMBER: _ClassVar[int]
    assignment: Assignment
    lease_ttl_s: float
    def __init__(self, assignment: _Optional[_Union[Assignment, _Mapping]] = ..., lease_ttl_s: _Optional[float] = ...) -> None: ...

class SendHeartbeatRequest(_message.Message):
    __slots__ = ("replica",)
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    replica: Replica
    def __init__(self, replica: _Optional[_Union[Replica, _Mapping]] = ...) -> None: ...

class SendHeartbeatResponse(_message.Message):
    __slots__ = ("assignment", "should_exit")
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    SHOULD_EXIT_FIELD_NUMBER: _ClassVar[int]
    assignment: Assignment
    should_exit: bool
    def __init__(self, assignment: _Optional[_Union[Assignment, _Mapping]] = ..., should_exit: _Optional[bool] = ...) -> None: ...

class ListReplicasRequest(_message.Message):
    __slots__ = ("job_id", "kind")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    kind: ReplicaKind
    def __init__(self, job_id: _Optional[str] = ..., kind: _Optional[_Union[ReplicaKind, str]] = ...) -> None: ...

class ListReplicasResponse(_message.Message):
    __slots__ = ("replicas",)
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    replicas: _containers.RepeatedCompositeFieldContainer[Replica]
    def __init__(self, replicas: _Optional[_Iterable[_Union[Replica, _Mapping]]] = ...) -> None: ...

class GetBundleRequest(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class GetBundleResponse(_message.Message):
    __slots__ = ("archive",)
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    archive: bytes
    def __init__(self, archive: _Optional[bytes] = ...) -> None: ...
