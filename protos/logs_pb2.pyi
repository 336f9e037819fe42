from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class LogChunk(_message.Message):
    __slots__ = ("channel", "launch_id", "offset", "data", "launched_at_ms", "model", "preset", "reservation_id", "ended", "failed")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAUNCHED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRESET_FIELD_NUMBER: _ClassVar[int]
    RESERVATION_ID_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    channel: str
    launch_id: str
    offset: int
    data: bytes
    launched_at_ms: int
    model: str
    preset: str
    reservation_id: str
    ended: bool
    failed: bool
    def __init__(self, channel: _Optional[str] = ..., launch_id: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., launched_at_ms: _Optional[int] = ..., model: _Optional[str] = ..., preset: _Optional[str] = ..., reservation_id: _Optional[str] = ..., ended: _Optional[bool] = ..., failed: _Optional[bool] = ...) -> None: ...

class LogAnswer(_message.Message):
    __slots__ = ("channel", "launch_id", "next_offset")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    channel: str
    launch_id: str
    next_offset: int
    def __init__(self, channel: _Optional[str] = ..., launch_id: _Optional[str] = ..., next_offset: _Optional[int] = ...) -> None: ...
