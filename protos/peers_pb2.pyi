from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowerMessage(_message.Message):
    __slots__ = ("channels", "keys", "commands")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedScalarFieldContainer[str]
    keys: bool
    commands: bool
    def __init__(self, channels: _Optional[_Iterable[str]] = ..., keys: _Optional[bool] = ..., commands: _Optional[bool] = ...) -> None: ...

class LeaderMessage(_message.Message):
    __slots__ = ("nodes", "last_look_ms")
    NODES_FIELD_NUMBER: _ClassVar[int]
    LAST_LOOK_MS_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[LiveNode]
    last_look_ms: int
    def __init__(self, nodes: _Optional[_Iterable[_Union[LiveNode, _Mapping]]] = ..., last_look_ms: _Optional[int] = ...) -> None: ...

class LiveNode(_message.Message):
    __slots__ = ("name", "json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    json: bytes
    def __init__(self, name: _Optional[str] = ..., json: _Optional[bytes] = ...) -> None: ...

class LogRequest(_message.Message):
    __slots__ = ("method", "arguments")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    method: str
    arguments: bytes
    def __init__(self, method: _Optional[str] = ..., arguments: _Optional[bytes] = ...) -> None: ...

class LogReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...
