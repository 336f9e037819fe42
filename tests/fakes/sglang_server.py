"""A stand-in for SGLang, which cannot be had without its GPUs: its command line, its health check, its ways to end.

    sglang_server.py serve --model-path FOLDER [SGLang's options]

What it imitates: argparse with abbreviations over the real option list; an HTTP port that answers 503 on /health until
its scheduler (a process of its own) has loaded, then runs a one-token request for it unless
SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION is 0; keys asked for everywhere but at /health; a second port near the first; on
SIGTERM it finishes all that runs, however long that takes; when its scheduler fails it kills its tree and itself with
SIGKILL. FOLDER/fake.json may say: load_seconds, token_seconds, fail ("oom", "kv", "busy", "architecture", "killed",
"assert"), fail_after (seconds of serving).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from agent import sglang_options

STAMP = "[2026-11-30 04:40:12 TP0] "
ZMQ_TCP_PORT_DELTA = 233
HEALTH_SECONDS = 20.0
FAILURES = {
    "oom": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB.",
    "kv": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.9",
    "busy": "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=3.1",
    "architecture": "ValueError: Model architectures ['FrobForCausalLM'] are not supported for now. Supported architectures: dict_keys([])",
    "assert": "AssertionError: frob",
}


def parser() -> argparse.ArgumentParser:
    """`sglang serve`'s, from the table of its options."""
    made = argparse.ArgumentParser(prog="sglang serve")
    for text, how in (
        (sglang_options.NO_VALUE, {"action": "store_true"}),
        (sglang_options.NEGATABLE, {"action": argparse.BooleanOptionalAction}),
        (sglang_options.ONE_VALUE, {}),
        (sglang_options.OPTIONAL_VALUE, {"nargs": "?"}),
        (sglang_options.MANY_VALUES, {"nargs": "+"}),
        (sglang_options.ANY_VALUES, {"nargs": "*"}),
    ):
        for group in text.split():
            names = group.split("|")
            if "--help" not in names:
                kind: dict[str, Any] = {"required": True} if "--model-path" in names else {}
                kind |= {"type": int} if names[0] in ("--port", "--context-length", "--tp-size") else {}
                made.add_argument(*names, **{**kind, **how})
    made.set_defaults(host="127.0.0.1", port=30000)
    return made


class Server:
    """What the handlers share."""

    def __init__(self, args: argparse.Namespace, settings: dict[str, Any]) -> None:
        self.args, self.settings = args, settings
        self.name = args.served_model_name or args.model_path
        self.ready = self.stopping = False
        self.running = 0
        self.lock = threading.Lock()  # one token at a time

    def token(self) -> None:
        with self.lock:
            time.sleep(self.settings.get("token_seconds", 0.005))

    def healthy(self) -> bool:
        if not self.ready or self.stopping:
            return False
        if os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION") == "0":
            return True
        time.sleep(1)  # it looks once a second for an answer
        if self.lock.acquire(timeout=HEALTH_SECONDS):
            self.lock.release()
            return True
        return False


class Handler(BaseHTTPRequestHandler):
    """The OpenAI part of SGLang's API that SlotServe uses."""

    protocol_version = "HTTP/1.1"
    server_: Server

    def do_GET(self) -> None:
        if self.path.startswith(("/health", "/ready")):
            self._answer(200 if self.server_.healthy() else 503, None)
        elif not self._known():
            self._answer(401, {"error": "Unauthorized"})
        elif self.path == "/v1/models":
            model = {"id": self.server_.name, "object": "model", "owned_by": "sglang", "root": self.server_.name}
            self._answer(200, {"object": "list", "data": [model]})
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if not self._known():
            self._answer(401, {"error": "Unauthorized"})
            return
        if not self.server_.ready or self.server_.stopping:
            self._answer(503, {"error": {"message": "not ready"}})
            return
        self.server_.running += 1
        try:
            self._complete(body)
        finally:
            self.server_.running -= 1

    def _complete(self, body: dict[str, Any]) -> None:
        count = int(body.get("max_tokens") or 8)
        head = {"id": "c", "model": body.get("model")}
        if not body.get("stream"):
            for _ in range(count):
                self.server_.token()
            choice = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "a" * count}}
            usage = {"prompt_tokens": 1, "completion_tokens": count, "total_tokens": count + 1}
            self._answer(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(count):
            self.server_.token()
            end = "length" if number == count - 1 else None
            choice = {"index": 0, "finish_reason": end, "delta": {"content": "a"}}
            event = {**head, "object": "chat.completion.chunk", "choices": [choice]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _known(self) -> bool:
        key = self.server_.args.api_key
        return key is None or self.headers.get("Authorization") == f"Bearer {key}"

    def _answer(self, status: int, content: object) -> None:
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        print(f"[2026-11-30 04:40:12] INFO:     {format % args}", flush=True)


def scheduler(settings: dict[str, Any], parent: int) -> None:
    """The process that would hold the GPU. On failure it tells its parent by SIGQUIT, as SGLang's does."""
    time.sleep(settings.get("load_seconds", 0.1))
    after = settings.get("fail_after")
    if after is not None:
        print("ready", file=sys.__stdout__, flush=True)
        time.sleep(after)
    kind = settings.get("fail")
    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind is not None:
        sys.stderr.write(f"{STAMP}Scheduler hit an exception: Traceback (most recent call last):\n")
        sys.stderr.write(f'  File "scheduler.py", line 6360, in run_scheduler_process\n{FAILURES[kind]}\n\n')
        sys.stderr.flush()
        os.kill(parent, signal.SIGQUIT)
        time.sleep(60)
    if after is None:
        print("ready", file=sys.__stdout__, flush=True)
    signal.pause()


def main() -> None:
    if sys.argv[1:2] == ["--scheduler"]:
        scheduler(json.loads(sys.argv[2]), os.getppid())
    args = parser().parse_args(sys.argv[2:] if sys.argv[1:2] == ["serve"] else sys.argv[1:])
    path = Path(args.model_path) / "fake.json"
    server = Server(args, json.loads(path.read_text()) if path.exists() else {})
    own = [sys.executable, "-S", __file__, "--scheduler", json.dumps(server.settings)]
    child = subprocess.Popen(own, stdout=subprocess.PIPE, text=True)

    def kill_process_tree(*_: object) -> None:
        print(
            "[2026-11-30 04:40:12] Received sigquit from a child process. It usually means the child failed.",
            flush=True,
        )
        child.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    def drain(*_: object) -> None:
        server.stopping = True

    signal.signal(signal.SIGQUIT, kill_process_tree)
    signal.signal(signal.SIGTERM, drain)
    Handler.server_ = server
    http = ThreadingHTTPServer((args.host, args.port), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    second = socket.create_server((args.host, args.port + ZMQ_TCP_PORT_DELTA if args.port < 65000 else 0))
    print(f"[2026-11-30 04:40:12] server_args=ServerArgs(model_path={args.model_path!r}, port={args.port})", flush=True)
    print(f"{STAMP}Load weight begin. avail mem=78.50 GB", flush=True)
    assert child.stdout is not None
    if child.stdout.readline() != "ready\n":
        code = child.wait()
        message = (
            f"Rank 0 scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), a common"
        )
        print(f"RuntimeError: {message} cause is the OS OOM killer.", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    server.ready = True
    print("[2026-11-30 04:40:12] The server is fired up and ready to roll!", flush=True)
    while not (server.stopping and server.running == 0):
        time.sleep(0.05)
    second.close()
    child.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
