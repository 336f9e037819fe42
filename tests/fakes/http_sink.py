"""A receiver of webhooks that keeps what it is given: `python -m tests.fakes.http_sink FOLDER`.

Requests are written to FOLDER/requests.jsonl, a line each {path, headers, body}; the port stands in FOLDER/port. The
path says how it answers: /ok 200, /status/NNN that status, /redirect 302 to /ok, /hang never, /long a body without end;
while FOLDER/down exists everything is 503.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def handler(folder: Path) -> type[BaseHTTPRequestHandler]:
    class Sink(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            if (folder / "down").exists():
                return self._answer(503)
            line = json.dumps({"path": self.path, "headers": dict(self.headers), "body": body})
            with open(folder / "requests.jsonl", "a") as out:
                out.write(line + "\n")
            if self.path.startswith("/hang"):
                time.sleep(3600)
            if self.path.startswith("/status/"):
                return self._answer(int(self.path.rsplit("/", 1)[1]))
            if self.path.startswith("/redirect"):
                self.send_response(302)
                self.send_header("Location", "/ok")
                self.end_headers()
                return None
            if self.path.startswith("/long"):
                self.send_response(200)
                self.end_headers()
                while True:
                    self.wfile.write(b"x" * 65536)
            return self._answer(200)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    return Sink


if __name__ == "__main__":
    where = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(where))
    server.daemon_threads = True
    (where / "port.new").write_text(str(server.server_address[1]))
    (where / "port.new").rename(where / "port")
    server.serve_forever()
