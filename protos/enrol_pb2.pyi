from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RecoverRequest(_message.Message):
    __slots__ = ("certificate_pem", "csr_pem", "signature")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: str
    csr_pem: str
    signature: bytes
    def __init__(self, certificate_pem: _Optional[str] = ..., csr_pem: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class EnrolRequest(_message.Message):
    __slots__ = ("node", "token", "csr_pem")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    CSR_PEM_FIELD_NUMBER: _ClassVar[int]
    node: str
    token: str
    csr_pem: str
    def __init__(self, node: _Optional[str] = ..., token: _Optional[str] = ..., csr_pem: _Optional[str] = ...) -> None: ...

class EnrolReply(_message.Message):
    __slots__ = ("certificate_pem", "ca_pem", "fleet_address")
    CERTIFICATE_PEM_FIELD_NUMBER: _ClassVar[int]
    CA_PEM_FIELD_NUMBER: _ClassVar[int]
    FLEET_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    certificate_pem: str
    ca_pem: str
    fleet_address: str
    def __init__(self, certificate_pem: _Optional[str] = ..., ca_pem: _Optional[str] = ..., fleet_address: _Optional[str] = ...) -> None: ...
