"""A llama-server in small for the runtime's tests: /health and /v1/models on a Unix socket, behaviour by arguments.

--fake-load S        answers 503 for S seconds        --fake-name N     serves under N only
--fake-deaf          ignores SIGTERM                  --fake-worker     leaves a deaf worker in a session of its own
--fake-say TEXT      prints TEXT at the start         --fake-exit CODE  ends at once with CODE
"""

import http.server
import json
import os
import signal
import socketserver
import sys
import time


def value(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


BEGUN, LOAD = time.monotonic(), float(value("--fake-load", "0"))
NAMES = [value("--fake-name")] if "--fake-name" in sys.argv else value("--alias").split(",")
KEY = os.environ["LLAMA_API_KEY"]


class Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if time.monotonic() < BEGUN + LOAD:
            return self.answer(503, {"error": {"message": "Loading model"}})
        if self.path == "/health":
            return self.answer(200, {"status": "ok"})
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            return self.answer(401, {})
        return self.answer(200, {"data": [{"id": NAMES[0], "aliases": NAMES}]})

    def answer(self, status: int, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def main() -> int:
    print(value("--fake-say", "small server"), flush=True)
    if "--version" in sys.argv:
        return 0
    if "--fake-exit" in sys.argv:
        return int(value("--fake-exit"))
    if "--fake-deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--fake-worker" in sys.argv and os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        code = "import time,os; print('worker', os.getpid(), flush=True); time.sleep(120)"
        os.execv(sys.executable, ["VLLM::Worker_TP", "-S", "-c", code])
    Server(value("--host"), Handler).serve_forever(poll_interval=60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
