from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Launch(_message.Message):
    __slots__ = ("identity", "model", "preset", "engine", "args", "env", "load_timeout_seconds", "load_seconds")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LOAD_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOAD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    identity: str
    model: str
    preset: str
    engine: str
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    load_timeout_seconds: float
    load_seconds: float
    def __init__(self, identity: _Optional[str] = ..., model: _Optional[str] = ..., preset: _Optional[str] = ..., engine: _Optional[str] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., load_timeout_seconds: _Optional[float] = ..., load_seconds: _Optional[float] = ...) -> None: ...

class Access(_message.Message):
    __slots__ = ("reservation_id", "kind", "holder_id", "participant_ids", "holder_name", "starts_at_ms", "ends_at_ms")
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    HOLDER_ID_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_IDS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_NAME_FIELD_NUMBER: _ClassVar[int]
    STARTS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_MS_FIELD_NUMBER: _ClassVar[int]
    reservation_id: str
    kind: str
    holder_id: str
    participant_ids: _containers.RepeatedScalarFieldContainer[str]
    holder_name: str
    starts_at_ms: int
    ends_at_ms: int
    def __init__(self, reservation_id: _Optional[str] = ..., kind: _Optional[str] = ..., holder_id: _Optional[str] = ..., participant_ids: _Optional[_Iterable[str]] = ..., holder_name: _Optional[str] = ..., starts_at_ms: _Optional[int] = ..., ends_at_ms: _Optional[int] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("at_ms", "target", "why", "fallback", "reservation_id", "access", "prepares_for_ms")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    PREPARES_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    target: str
    why: str
    fallback: str
    reservation_id: str
    access: Access
    prepares_for_ms: int
    def __init__(self, at_ms: _Optional[int] = ..., target: _Optional[str] = ..., why: _Optional[str] = ..., fallback: _Optional[str] = ..., reservation_id: _Optional[str] = ..., access: _Optional[_Union[Access, _Mapping]] = ..., prepares_for_ms: _Optional[int] = ...) -> None: ...

class ChannelPlan(_message.Message):
    __slots__ = ("channel", "steps", "launches", "max_concurrent", "max_concurrent_per_key")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENT_FIELD_NUMBER: _ClassVar[int]
    MAX_CONCURRENT_PER_KEY_FIELD_NUMBER: _ClassVar[int]
    channel: str
    steps: _containers.RepeatedCompositeFieldContainer[Step]
    launches: _containers.RepeatedCompositeFieldContainer[Launch]
    max_concurrent: int
    max_concurrent_per_key: int
    def __init__(self, channel: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., launches: _Optional[_Iterable[_Union[Launch, _Mapping]]] = ..., max_concurrent: _Optional[int] = ..., max_concurrent_per_key: _Optional[int] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("stop_timeout_seconds", "drain_seconds", "load_timeout_seconds", "disk_read_mbps", "retry_min_seconds", "retry_max_seconds", "switch_buffer_seconds", "show_holders", "gateway_linger_seconds")
    STOP_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOAD_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DISK_READ_MBPS_FIELD_NUMBER: _ClassVar[int]
    RETRY_MIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RETRY_MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_BUFFER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SHOW_HOLDERS_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_LINGER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    stop_timeout_seconds: float
    drain_seconds: float
    load_timeout_seconds: float
    disk_read_mbps: float
    retry_min_seconds: float
    retry_max_seconds: float
    switch_buffer_seconds: float
    show_holders: str
    gateway_linger_seconds: float
    def __init__(self, stop_timeout_seconds: _Optional[float] = ..., drain_seconds: _Optional[float] = ..., load_timeout_seconds: _Optional[float] = ..., disk_read_mbps: _Optional[float] = ..., retry_min_seconds: _Optional[float] = ..., retry_max_seconds: _Optional[float] = ..., switch_buffer_seconds: _Optional[float] = ..., show_holders: _Optional[str] = ..., gateway_linger_seconds: _Optional[float] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("node", "channels", "settings")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    node: str
    channels: _containers.RepeatedCompositeFieldContainer[ChannelPlan]
    settings: Settings
    def __init__(self, node: _Optional[str] = ..., channels: _Optional[_Iterable[_Union[ChannelPlan, _Mapping]]] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("index", "uuid", "name", "memory_total_bytes", "memory_used_bytes", "utilisation_percent", "temperature_c", "power_watts", "processes", "problem")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_PERCENT_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    POWER_WATTS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    utilisation_percent: int
    temperature_c: int
    power_watts: int
    processes: _containers.RepeatedCompositeFieldContainer[GpuProcess]
    problem: str
    def __init__(self, index: _Optional[int] = ..., uuid: _Optional[str] = ..., name: _Optional[str] = ..., memory_total_bytes: _Optional[int] = ..., memory_used_bytes: _Optional[int] = ..., utilisation_percent: _Optional[int] = ..., temperature_c: _Optional[int] = ..., power_watts: _Optional[int] = ..., processes: _Optional[_Iterable[_Union[GpuProcess, _Mapping]]] = ..., problem: _Optional[str] = ...) -> None: ...

class GpuProcess(_message.Message):
    __slots__ = ("pid", "user", "command", "memory_bytes", "channel")
    PID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    pid: int
    user: str
    command: str
    memory_bytes: int
    channel: str
    def __init__(self, pid: _Optional[int] = ..., user: _Optional[str] = ..., command: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., channel: _Optional[str] = ...) -> None: ...

class DeclaredChannel(_message.Message):
    __slots__ = ("name", "gpu_uuids", "engines", "gpu_memory_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GPU_UUIDS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    gpu_uuids: _containers.RepeatedScalarFieldContainer[str]
    engines: _containers.RepeatedScalarFieldContainer[str]
    gpu_memory_bytes: int
    def __init__(self, name: _Optional[str] = ..., gpu_uuids: _Optional[_Iterable[str]] = ..., engines: _Optional[_Iterable[str]] = ..., gpu_memory_bytes: _Optional[int] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "path", "size_bytes", "format", "incomplete", "detail", "channels", "architecture", "context_length", "quantisation", "parameters", "projector", "rotating_disk")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    QUANTISATION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PROJECTOR_FIELD_NUMBER: _ClassVar[int]
    ROTATING_DISK_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    size_bytes: int
    format: str
    incomplete: bool
    detail: str
    channels: _containers.RepeatedScalarFieldContainer[str]
    architecture: str
    context_length: int
    quantisation: str
    parameters: int
    projector: str
    rotating_disk: bool
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., format: _Optional[str] = ..., incomplete: _Optional[bool] = ..., detail: _Optional[str] = ..., channels: _Optional[_Iterable[str]] = ..., architecture: _Optional[str] = ..., context_length: _Optional[int] = ..., quantisation: _Optional[str] = ..., parameters: _Optional[int] = ..., projector: _Optional[str] = ..., rotating_disk: _Optional[bool] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("target", "model", "preset", "category", "reason", "count", "since_ms", "last_ms", "retry_at_ms", "episode", "detail")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    target: str
    model: str
    preset: str
    category: str
    reason: str
    count: int
    since_ms: int
    last_ms: int
    retry_at_ms: int
    episode: str
    detail: str
    def __init__(self, target: _Optional[str] = ..., model: _Optional[str] = ..., preset: _Optional[str] = ..., category: _Optional[str] = ..., reason: _Optional[str] = ..., count: _Optional[int] = ..., since_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., retry_at_ms: _Optional[int] = ..., episode: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class ChannelStatus(_message.Message):
    __slots__ = ("channel", "phase", "running", "running_model", "running_preset", "fallback", "failure", "in_flight", "load_started_at_ms", "load_estimated_seconds", "phase_since_ms", "detail", "engine_pid", "launch_id", "drain_deadline_ms", "switching_to")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_MODEL_FIELD_NUMBER: _ClassVar[int]
    RUNNING_PRESET_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LOAD_STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOAD_ESTIMATED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PHASE_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_PID_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_ID_FIELD_NUMBER: _ClassVar[int]
    DRAIN_DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    SWITCHING_TO_FIELD_NUMBER: _ClassVar[int]
    channel: str
    phase: str
    running: str
    running_model: str
    running_preset: str
    fallback: bool
    failure: Failure
    in_flight: int
    load_started_at_ms: int
    load_estimated_seconds: float
    phase_since_ms: int
    detail: str
    engine_pid: int
    launch_id: str
    drain_deadline_ms: int
    switching_to: str
    def __init__(self, channel: _Optional[str] = ..., phase: _Optional[str] = ..., running: _Optional[str] = ..., running_model: _Optional[str] = ..., running_preset: _Optional[str] = ..., fallback: _Optional[bool] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., in_flight: _Optional[int] = ..., load_started_at_ms: _Optional[int] = ..., load_estimated_seconds: _Optional[float] = ..., phase_since_ms: _Optional[int] = ..., detail: _Optional[str] = ..., engine_pid: _Optional[int] = ..., launch_id: _Optional[str] = ..., drain_deadline_ms: _Optional[int] = ..., switching_to: _Optional[str] = ...) -> None: ...
