"""Refusals as OpenAI clients understand them: `{"error": {"message", "type", "param", "code"}}`, with the request's id."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from agent.core.admission import Admission
from agent.core.words import moment
from agent.gateway import date

TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
}
# What OpenAI's Python client waits for at most; beyond, it tells its caller at once. Its JavaScript client waits for ever,
# or asks again at once, unless it is told not to by X-Should-Retry.
LONGEST_WAIT_SECONDS = 120
REASONS = {s.value: s.phrase for s in HTTPStatus}


class Refusal(Exception):
    """An answer of the gateway's own: status, code, words, after how many seconds to come again, and the exact instant
    (ms) that the words speak of."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        until: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.until = until
        self.elsewhere: list[dict[str, Any]] | None = None  # places of the fleet that have what is wanted

    def body(self, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {
            "message": self.message,
            "type": TYPES.get(self.status, "server_error"),
            "param": self.param,
            "code": self.code,
            "request_id": request_id,
        }
        if self.until is not None:
            error["until"] = moment(self.until)
        if self.elsewhere:
            error["elsewhere"] = self.elsewhere
        return {"error": error}


def of_admission(admission: Admission, param: str | None = None) -> Refusal:
    """What the core has decided, as the client is told."""
    return Refusal(
        admission.status,
        admission.code,
        admission.message,
        param=param,
        retry_after=admission.retry_after,
        until=admission.until,
    )


def bad_request(message: str, param: str | None = None, code: str = "invalid_request") -> Refusal:
    return Refusal(400, code, message, param=param)


def encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def answer(
    refusal: Refusal,
    request_id: str,
    *,
    close: bool,
    head_only: bool = False,
    anthropic: bool = False,
    extra: bytes = b"",
) -> bytes:
    """The whole HTTP answer; /v1/messages has its errors marked as such."""
    content = refusal.body(request_id)
    body = encode({"type": "error", **content} if anthropic else content)
    lines = [
        f"HTTP/1.1 {refusal.status} {REASONS.get(refusal.status, 'Error')}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nX-Request-Id: {request_id}\r\n"
    ]
    if refusal.retry_after is not None:
        lines.append(f"Retry-After: {refusal.retry_after}\r\n")
        if refusal.retry_after > LONGEST_WAIT_SECONDS:
            lines.append("X-Should-Retry: false\r\n")
    if refusal.status == 401:
        lines.append('WWW-Authenticate: Bearer realm="slotserve"\r\n')
    if close:
        lines.append("Connection: close\r\n")
    return "".join(lines).encode() + date.line() + extra + b"\r\n" + (b"" if head_only else body)


def event(refusal: Refusal, request_id: str, anthropic: bool) -> bytes:
    """The refusal as the last event of a stream; /v1/messages names its events."""
    body = refusal.body(request_id)
    if anthropic:
        return b"event: error\ndata: " + encode({"type": "error", **body}) + b"\n\n"
    return b"data: " + encode(body) + b"\n\n"
