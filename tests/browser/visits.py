"""A person's browser against a console: signs in by the form, and keeps what the browser complains of.

BROWSER_SLOWER=6 makes its processor that many times slower: tests that ask a page before it has answered fail then.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
PATIENCE_MS = 20_000


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(app: Any) -> Iterator[str]:
    """The application on a free port."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


class Visitor:
    """`complaints` is what the browser's own console said: forbidden scripts and styles, faults of scripts."""

    def __init__(self, browser: Any, url: str, size: dict[str, int] = WIDE, language: str = "en", **more: Any) -> None:
        self.url = url
        self.context = browser.new_context(viewport=size, timezone_id="Asia/Shanghai", **more)
        self.context.set_default_timeout(PATIENCE_MS)
        cookies = {"language": language, "zone": "Asia/Shanghai"}
        self.context.add_cookies([{"name": k, "value": v, "url": url} for k, v in cookies.items()])
        self.page = self.context.new_page()
        if (times := float(os.environ.get("BROWSER_SLOWER", "1"))) > 1:
            self.context.new_cdp_session(self.page).send("Emulation.setCPUThrottlingRate", {"rate": times})
        self.complaints: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))

    def sign_in(self, name: str, password: str, path: str = "/") -> Any:
        self.page.goto(f"{self.url}/login?next={path}")
        self.page.fill("#l-name", name)
        self.page.fill("#l-password", password)
        self.page.press("#l-password", "Enter")
        self.page.wait_for_url(self.url + path)
        self.painted()
        return self.page

    def painted(self) -> None:
        """Waits for the first paint: before it Chromium drops the keys and clicks that a page is given."""
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def sideways(self) -> int:
        """How many pixels the page is too wide."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
