from protos import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RenewRequest(_message.Message):
    __slots__ = ("csr_pem",)
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    csr_pem: str
    def __init__(self, csr_pem: _Optional[str] = ...) -> None: ...

class RenewReply(_message.Message):
    __slots__ = ("certificate_pem", "ca_pem")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CA_PEM_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: str
    ca_pem: str
    def __init__(self, certificate_pem: _Optional[str] = ..., ca_pem: _Optional[str] = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("hello", "status", "plan_answer", "load_result", "command_result", "time_request", "inventory", "event", "usage")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PLAN_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LOAD_RESULT_FIELD_NUMBER: _ClassVar[int]
    COMMAND_RESULT_FIELD_NUMBER: _ClassVar[int]
    TIME_REQUEST_FIELD_NUMBER: _ClassVar[int]
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    status: Status
    plan_answer: PlanAnswer
    load_result: LoadResult
    command_result: CommandResult
    time_request: TimeRequest
    inventory: Inventory
    event: Event
    usage: UsageReport
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., plan_answer: _Optional[_Union[PlanAnswer, _Mapping]] = ..., load_result: _Optional[_Union[LoadResult, _Mapping]] = ..., command_result: _Optional[_Union[CommandResult, _Mapping]] = ..., time_request: _Optional[_Union[TimeRequest, _Mapping]] = ..., inventory: _Optional[_Union[Inventory, _Mapping]] = ..., event: _Optional[_Union[Event, _Mapping]] = ..., usage: _Optional[_Union[UsageReport, _Mapping]] = ...) -> None: ...

class ControllerMessage(_message.Message):
    __slots__ = ("welcome", "plan", "command", "keys", "time_reply", "received", "trust", "directory")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TIME_REPLY_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    TRUST_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    plan: PlanPush
    command: Command
    keys: KeyTable
    time_reply: TimeReply
    received: Received
    trust: Trust
    directory: DirectoryPush
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., plan: _Optional[_Union[PlanPush, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ..., keys: _Optional[_Union[KeyTable, _Mapping]] = ..., time_reply: _Optional[_Union[TimeReply, _Mapping]] = ..., received: _Optional[_Union[Received, _Mapping]] = ..., trust: _Optional[_Union[Trust, _Mapping]] = ..., directory: _Optional[_Union[DirectoryPush, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("node", "version", "contract", "epoch", "generation", "plan_sha256", "own_settings", "channels", "gateway_urls", "boot_id", "trusts", "relay_address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PLAN_SHA256_FIELD_NUMBER: _ClassVar[int]
    OWN_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_URLS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    TRUSTS_FIELD_NUMBER: _ClassVar[int]
    RELAY_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    version: str
    contract: int
    epoch: int
    generation: int
    plan_sha256: bytes
    own_settings: _types_pb2.Settings
    channels: _containers.RepeatedCompositeFieldContainer[_types_pb2.DeclaredChannel]
    gateway_urls: _containers.RepeatedScalarFieldContainer[str]
    boot_id: str
    trusts: _containers.RepeatedScalarFieldContainer[str]
    relay_address: str
    def __init__(self, node: _Optional[str] = ..., version: _Optional[str] = ..., contract: _Optional[int] = ..., epoch: _Optional[int] = ..., generation: _Optional[int] = ..., plan_sha256: _Optional[bytes] = ..., own_settings: _Optional[_Union[_types_pb2.Settings, _Mapping]] = ..., channels: _Optional[_Iterable[_Union[_types_pb2.DeclaredChannel, _Mapping]]] = ..., gateway_urls: _Optional[_Iterable[str]] = ..., boot_id: _Optional[str] = ..., trusts: _Optional[_Iterable[str]] = ..., relay_address: _Optional[str] = ...) -> None: ...

class Trust(_message.Message):
    __slots__ = ("ca_pem", "renew")
    CA_PEM_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    ca_pem: str
    renew: bool
    def __init__(self, ca_pem: _Optional[str] = ..., renew: _Optional[bool] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("epoch", "controller_version", "heartbeat_seconds", "controllers")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    controller_version: str
    heartbeat_seconds: float
    controllers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, epoch: _Optional[int] = ..., controller_version: _Optional[str] = ..., heartbeat_seconds: _Optional[float] = ..., controllers: _Optional[_Iterable[str]] = ...) -> None: ...

class PlanPush(_message.Message):
    __slots__ = ("epoch", "generation", "plan", "sha256")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    generation: int
    plan: bytes
    sha256: bytes
    def __init__(self, epoch: _Optional[int] = ..., generation: _Optional[int] = ..., plan: _Optional[bytes] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class PlanAnswer(_message.Message):
    __slots__ = ("epoch", "generation", "accepted", "reason")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    generation: int
    accepted: bool
    reason: str
    def __init__(self, epoch: _Optional[int] = ..., generation: _Optional[int] = ..., accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("channels", "gpus", "gpu_problem")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPU_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedCompositeFieldContainer[_types_pb2.ChannelStatus]
    gpus: _containers.RepeatedCompositeFieldContainer[_types_pb2.Gpu]
    gpu_problem: str
    def __init__(self, channels: _Optional[_Iterable[_Union[_types_pb2.ChannelStatus, _Mapping]]] = ..., gpus: _Optional[_Iterable[_Union[_types_pb2.Gpu, _Mapping]]] = ..., gpu_problem: _Optional[str] = ...) -> None: ...

class Inventory(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[_types_pb2.Model]
    def __init__(self, models: _Optional[_Iterable[_Union[_types_pb2.Model, _Mapping]]] = ...) -> None: ...

class LoadResult(_message.Message):
    __slots__ = ("id", "channel", "identity", "model", "preset", "ok", "seconds", "at_ms", "gpu_memory_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    channel: str
    identity: str
    model: str
    preset: str
    ok: bool
    seconds: float
    at_ms: int
    gpu_memory_bytes: int
    def __init__(self, id: _Optional[str] = ..., channel: _Optional[str] = ..., identity: _Optional[str] = ..., model: _Optional[str] = ..., preset: _Optional[str] = ..., ok: _Optional[bool] = ..., seconds: _Optional[float] = ..., at_ms: _Optional[int] = ..., gpu_memory_bytes: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("id", "kind", "channel", "failure", "at_ms", "text", "reservation_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    channel: str
    failure: _types_pb2.Failure
    at_ms: int
    text: str
    reservation_id: str
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., channel: _Optional[str] = ..., failure: _Optional[_Union[_types_pb2.Failure, _Mapping]] = ..., at_ms: _Optional[int] = ..., text: _Optional[str] = ..., reservation_id: _Optional[str] = ...) -> None: ...

class UsageReport(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("id", "channel", "model", "key_id", "user_id", "at_ms", "duration_seconds", "first_byte_seconds", "status", "outcome", "bytes_in", "bytes_out", "prompt_tokens", "completion_tokens")
    ID_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_BYTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    id: str
    channel: str
    model: str
    key_id: str
    user_id: str
    at_ms: int
    duration_seconds: float
    first_byte_seconds: float
    status: int
    outcome: str
    bytes_in: int
    bytes_out: int
    prompt_tokens: int
    completion_tokens: int
    def __init__(self, id: _Optional[str] = ..., channel: _Optional[str] = ..., model: _Optional[str] = ..., key_id: _Optional[str] = ..., user_id: _Optional[str] = ..., at_ms: _Optional[int] = ..., duration_seconds: _Optional[float] = ..., first_byte_seconds: _Optional[float] = ..., status: _Optional[int] = ..., outcome: _Optional[str] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "kind", "channel", "deadline_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    channel: str
    deadline_ms: int
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., channel: _Optional[str] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("id", "ok", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    ok: bool
    reason: str
    def __init__(self, id: _Optional[str] = ..., ok: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class TimeRequest(_message.Message):
    __slots__ = ("boottime_ns", "wall_ms")
    BOOTTIME_NS_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    boottime_ns: int
    wall_ms: int
    def __init__(self, boottime_ns: _Optional[int] = ..., wall_ms: _Optional[int] = ...) -> None: ...

class TimeReply(_message.Message):
    __slots__ = ("boottime_ns", "controller_ms")
    BOOTTIME_NS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_MS_FIELD_NUMBER: _ClassVar[int]
    boottime_ns: int
    controller_ms: int
    def __init__(self, boottime_ns: _Optional[int] = ..., controller_ms: _Optional[int] = ...) -> None: ...

class KeyTable(_message.Message):
    __slots__ = ("whole", "keys", "removed_ids")
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_IDS_FIELD_NUMBER: _ClassVar[int]
    whole: bool
    keys: _containers.RepeatedCompositeFieldContainer[Key]
    removed_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, whole: _Optional[bool] = ..., keys: _Optional[_Iterable[_Union[Key, _Mapping]]] = ..., removed_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("id", "sha256", "user_id", "user_name", "role", "expires_at_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    sha256: str
    user_id: str
    user_name: str
    role: str
    expires_at_ms: int
    def __init__(self, id: _Optional[str] = ..., sha256: _Optional[str] = ..., user_id: _Optional[str] = ..., user_name: _Optional[str] = ..., role: _Optional[str] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...

class DirectoryPush(_message.Message):
    __slots__ = ("directory",)
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    directory: bytes
    def __init__(self, directory: _Optional[bytes] = ...) -> None: ...

class Directory(_message.Message):
    __slots__ = ("places", "members")
    PLACES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    places: _containers.RepeatedCompositeFieldContainer[Place]
    members: bytes
    def __init__(self, places: _Optional[_Iterable[_Union[Place, _Mapping]]] = ..., members: _Optional[bytes] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("node", "channel", "gateway_url", "relay_address", "model", "preset", "ready", "from_ms", "until_ms", "access")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_URL_FIELD_NUMBER: _ClassVar[int]
    RELAY_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    channel: str
    gateway_url: str
    relay_address: str
    model: str
    preset: str
    ready: bool
    from_ms: int
    until_ms: int
    access: _containers.RepeatedCompositeFieldContainer[_types_pb2.Access]
    def __init__(self, node: _Optional[str] = ..., channel: _Optional[str] = ..., gateway_url: _Optional[str] = ..., relay_address: _Optional[str] = ..., model: _Optional[str] = ..., preset: _Optional[str] = ..., ready: _Optional[bool] = ..., from_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., access: _Optional[_Iterable[_Union[_types_pb2.Access, _Mapping]]] = ...) -> None: ...
