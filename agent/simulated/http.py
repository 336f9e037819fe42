"""The little HTTP/1.1 that the simulated engine speaks: keep-alive, chunked bodies both ways, a watch on the client."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from agent.simulated.arguments import Values
from agent.simulated.console import log
from agent.simulated.slots import Gone

POLLRDHUP = 0x2000


Handler = Callable[["Connection", "Request"], None]


@dataclass(frozen=True, slots=True)
class Request:
    """A request, read whole."""

    method: str
    path: str
    query: str
    headers: Values
    body: bytes


def listen(host: str, port: int, answer: Handler) -> tuple[str, socket.socket]:
    """Answers from now on, a thread a connection; returns the address and its socket. OSError where it cannot listen."""
    if host.endswith(".sock"):
        door = socket.socket(socket.AF_UNIX)
        door.bind(host)
        address = f"unix://{host}"
    else:
        door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
        address = f"http://{host}:{door.getsockname()[1]}"
    door.listen(512)
    threading.Thread(target=_accept, args=(door, answer), daemon=True).start()
    return address, door


def _accept(door: socket.socket, answer: Handler) -> None:
    while True:
        try:
            connection, _ = door.accept()
        except OSError as err:
            log(f"srv  accept: {err}", "W")
            time.sleep(0.05)
            continue
        threading.Thread(target=Connection(connection, answer).run, daemon=True).start()


class Connection:
    """One client: reads requests, answers them one after the other."""

    def __init__(self, sock: socket.socket, answer: Handler) -> None:
        self.answer = answer
        self.sock = sock
        self.pending = b""
        self.poll = select.poll()
        self.poll.register(sock, POLLRDHUP | select.POLLIN)

    def run(self) -> None:
        try:
            with self.sock:
                if self.sock.family != socket.AF_UNIX:
                    self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while self._serve_one():
                    pass
        except (Gone, ConnectionError, TimeoutError):
            return
        except ValueError as err:
            log(f"srv  bad request: {err}", "W")

    def _serve_one(self) -> bool:
        head = self._read_until(b"\r\n\r\n")
        if head is None:
            return False
        first, _, rest = head.decode("latin-1").partition("\r\n")
        method, target, version = first.split(" ", 2)
        headers: Values = {}
        for line in rest.split("\r\n"):
            key, _, value = line.partition(":")
            headers[key.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._body(headers)
        path, _, query = target.partition("?")
        keep = headers.get("connection", "").lower() != "close" and version == "HTTP/1.1"
        self.answer(self, Request(method, unquote(path), query, headers, body))
        return keep

    def watch(self, seconds: float) -> None:
        """Waits, and raises Gone at once when the client leaves. Bytes of a next request are no leaving."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            for _, event in self.poll.poll(min(max(0.0, left), 3600.0) * 1000):
                if event & (POLLRDHUP | select.POLLHUP | select.POLLERR) or not self.sock.recv(1, socket.MSG_PEEK):
                    raise Gone
                if left > 0:
                    time.sleep(min(left, 0.005))  # a pipelined request: nothing to wait for with poll
            if left <= 0:
                return

    def _read_until(self, mark: bytes) -> bytes | None:
        while mark not in self.pending:
            if len(self.pending) > 1 << 20:
                raise ValueError("head too long")
            more = self.sock.recv(65536)
            if not more:
                return None
            self.pending += more
        head, _, self.pending = self.pending.partition(mark)
        return head

    def _read(self, count: int) -> bytes:
        while len(self.pending) < count:
            more = self.sock.recv(max(65536, count - len(self.pending)))
            if not more:
                raise Gone
            self.pending += more
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    def _body(self, headers: Values) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return self._read(int(headers.get("content-length") or 0))
        body = b""
        while True:
            line = self._read_until(b"\r\n")
            if line is None:
                raise Gone
            size = int(line.split(b";")[0], 16)
            body += self._read(size)
            self._read(2)
            if size == 0:
                return body

    def send(self, status: int, body: bytes, kind: str = "application/json; charset=utf-8") -> None:
        head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\nServer: simulated\r\nContent-Type: {kind}\r\n"
        self.sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def json(self, value: Any) -> None:
        self.send(200, json.dumps(value).encode())

    def error(self, status: int, message: str, kind: str) -> None:
        self.send(status, json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode())

    def stream(self) -> None:
        self.sock.sendall(
            b"HTTP/1.1 200 OK\r\nServer: simulated\r\nX-Accel-Buffering: no\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    def event(self, value: Any, name: str = "") -> None:
        self.chunk((f"event: {name}\n" if name else "").encode() + f"data: {json.dumps(value)}\n\n".encode())

    def done(self) -> None:
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.sock.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")


_REASONS: dict[int, str] = {
    200: "OK",
    401: "Unauthorized",
    404: "Not Found",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
