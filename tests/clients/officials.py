"""The clients that people use: OpenAI's own for Python and JavaScript, and curl. Each is asked for the same and tells what
it understood."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import openai

from tests.parts import ROOT, locked

JAVASCRIPT = "openai@6.49.0"


@dataclass(frozen=True)
class Ask:
    """A chat completion, streamed or not, or with `path` anything else; `retries` as the client counts them."""

    model: Any = "auto"
    stream: bool = False
    retries: int = 0
    method: str = "post"
    path: str = ""
    channel: str = ""  # named by the base URL
    more: int = 0  # bytes of the prompt

    def base(self, url: str) -> str:
        return f"{url}/channels/{self.channel}/v1" if self.channel else f"{url}/v1"

    @property
    def body(self) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": "hello" + "o" * self.more}], "model": self.model}


@dataclass(frozen=True)
class Said:
    """What a client tells its caller: the class of its error ("" where all went well) and what is in it."""

    error: str = ""
    status: int | None = None
    code: str | None = None
    message: str = ""
    request_id: str | None = None
    retry_after: str | None = None
    seconds: float = 0.0
    events: int = 0
    text: str = ""

    def __str__(self) -> str:
        if not self.error:
            return f"{self.text or f'{self.events} events'} after {self.seconds:.1f} s"
        after = f", Retry-After {self.retry_after}" if self.retry_after else ""
        return f"{self.error} {self.status or ''} {self.code or ''}{after} after {self.seconds:.1f} s: {self.message}"


class Python:
    """`openai` for Python."""

    name = f"openai-python {openai.__version__}"

    def ask(self, url: str, key: str, ask: Ask) -> Said:
        client = openai.OpenAI(base_url=ask.base(url), api_key=key, max_retries=ask.retries, timeout=30)
        begun, events, text = time.monotonic(), 0, ""
        try:
            if ask.path and ask.method == "get":
                client.get(ask.path, cast_to=object)
            elif ask.path:
                client.post(ask.path, cast_to=object, body=ask.body)
            elif ask.stream:
                for _ in client.chat.completions.create(**ask.body, stream=True):
                    events += 1
            else:
                text = client.chat.completions.create(**ask.body).choices[0].message.content or ""
        except (openai.APIError, httpx.HTTPError) as err:
            response = getattr(err, "response", None)
            message = f"{err}" if getattr(err, "code", None) is None else getattr(err, "message", f"{err}")
            return Said(
                type(err).__name__,
                getattr(err, "status_code", None),
                getattr(err, "code", None),
                message,
                getattr(err, "request_id", None),
                response.headers.get("retry-after") if response is not None else None,
                time.monotonic() - begun,
                events,
            )
        finally:
            client.close()
        return Said(seconds=time.monotonic() - begun, events=events, text=text)


class JavaScript:
    """`openai` for JavaScript, in a node process of its own. A context manager."""

    name = f"openai-node {JAVASCRIPT.rpartition('@')[2]}"

    def __init__(self, package: Path) -> None:
        self._package = package

    def __enter__(self) -> JavaScript:
        script = Path(__file__).with_name("ask.cjs")
        self._process = subprocess.Popen(
            ["node", str(script), str(self._package)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def ask(self, url: str, key: str, ask: Ask) -> Said:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wanted = {"base": ask.base(url), "key": key, "retries": ask.retries, "method": ask.method, "path": ask.path,
                  "body": None if ask.method == "get" else ask.body, "stream": ask.stream}  # fmt: skip
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        said: Mapping[str, Any] = json.loads(self._process.stdout.readline())
        names = ("error", "status", "code", "message", "request_id", "retry_after", "seconds", "events", "text")
        return Said(**{name: said[name] for name in names if said.get(name) is not None})


class Curl:
    """curl, as people paste it."""

    name = "curl"

    def ask(self, url: str, key: str, ask: Ask) -> Said:
        begun = time.monotonic()
        command = ["curl", "-sS", "-i", "-N", "--max-time", "30", ask.base(url) + (ask.path or "/chat/completions")]
        if key:
            command += ["-H", f"Authorization: Bearer {key}"]
        if ask.retries:
            command += ["--retry", str(ask.retries)]
        data = b""
        if ask.method == "post":
            command += ["-H", "Content-Type: application/json", "-d", "@-"]
            data = json.dumps({**ask.body, "stream": ask.stream}).encode()
        done = subprocess.run(command, input=data, capture_output=True, timeout=60)
        seconds = time.monotonic() - begun
        answers = done.stdout.decode().split("HTTP/1.1 ")[1:]
        head, _, body = (answers[-1] if answers else "").partition("\r\n\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head.split("\r\n")[1:])}
        status = int(head[:3] or 0)
        events = [e for e in body.split("\n\n") if e.startswith("data: ")]
        last = events[-1].removeprefix("data: ") if events else body
        error = json.loads(last)["error"] if '"error"' in last else {}
        if done.returncode or error:
            word = f"exit status {done.returncode}" if done.returncode else "HTTP"
            words = error.get("message") or done.stderr.decode().strip()
            return Said(word, status, error.get("code"), words, headers.get("x-request-id"), headers.get("retry-after"),
                        seconds, len(events))  # fmt: skip
        text = "" if events else json.loads(body)["choices"][0]["message"]["content"]
        return Said(seconds=seconds, events=len(events), text=text)


def find_javascript() -> Path | str:
    """The JavaScript client's package, brought by npm into .parts once; or why it cannot be had."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    folder = ROOT / ".parts" / "openai-js"
    package = folder / "node_modules" / "openai"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        wanted = JAVASCRIPT.rpartition("@")[2]
        if (package / "package.json").exists() and json.loads((package / "package.json").read_text())[
            "version"
        ] == wanted:
            return package
        done = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), JAVASCRIPT],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "npm_config_update_notifier": "false"},
        )
        if done.returncode:
            return f"npm install {JAVASCRIPT} failed: {(done.stderr.strip().splitlines() or ['no words'])[-1]}"
    return package
