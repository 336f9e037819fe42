"""A whole SlotServe on this machine for tests: real controller, agent and gateway processes, real engines.

Every process is started by its installed command with settings in the environment, and ended by its pid. Times are
made short by settings, never by sleeping through the real ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

SHORT = {
    "SLOTSERVE_TICK_SECONDS": "1",
    "SLOTSERVE_SWITCH_BUFFER_SECONDS": "1",
    "SLOTSERVE_MIN_PRELOAD_LEAD_SECONDS": "2",
    "SLOTSERVE_STOP_TIMEOUT_SECONDS": "3",
    "SLOTSERVE_DRAIN_SECONDS": "3",
    "SLOTSERVE_LOAD_TIMEOUT_SECONDS": "30",
    "SLOTSERVE_RETRY_MIN_SECONDS": "1",
    "SLOTSERVE_RETRY_MAX_SECONDS": "4",
    "SLOTSERVE_DISK_READ_MBPS": "5000",
    "SLOTSERVE_LOG_LEVEL": "info",
}
BIN = Path(sys.executable).parent


class ClusterError(AssertionError):
    """Something did not come up or did not happen in time; the message ends with what the processes said."""


class Process:
    """One of our programs, its output in a file."""

    def __init__(self, name: str, args: list[str], env: dict[str, str], folder: Path) -> None:
        self.name, self.args, self.env = name, args, env
        self.output = folder / f"{name}.out"
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.output.open("ab") as out:
            self.popen = subprocess.Popen(
                self.args,
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self.popen is not None, f"{self.name} was not started"
        return self.popen.pid

    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def stop(self, sig: int = signal.SIGTERM, seconds: float = 15.0) -> None:
        if self.popen is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(sig)
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait(5)
            raise ClusterError(f"{self.name} did not end {seconds} s after signal {sig}\n{self.tail()}") from None

    def tail(self, lines: int = 40) -> str:
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return f"--- {self.name}\n" + "\n".join(text.splitlines()[-lines:])


class Cluster:
    """`with Cluster(...) as c:`; `c.api` speaks REST as the administrator, `c.gateway_url` is what clients call.

    engines: the node file's [engines] as {name: {"command": [...], "env": {...}}}; channels: {name: {"folder": Path,
    "engines": [...]}}.
    """

    start_seconds = 120.0  # where everything is busy

    def __init__(
        self, engines: dict[str, Any], channels: dict[str, Any], settings: dict[str, str] | None = None
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="slots-"))
        self.engines, self.channels = engines, channels
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLOTSERVE_")}
        self.env = {
            **env,
            **SHORT,
            "SLOTSERVE_STATE_DIR": str(self.root / "c"),
            "SLOTSERVE_HTTP_LISTEN": "127.0.0.1:0",
            "SLOTSERVE_FLEET_LISTEN": "127.0.0.1:0",
            "SLOTSERVE_ENROL_LISTEN": "127.0.0.1:0",
            "SLOTSERVE_MAX_BOOKING_HOURS": "0",
            "SLOTSERVE_MAX_DAYS_AHEAD": "0",
            "SLOTSERVE_AGENT_STATE_DIR": str(self.root / "a"),
            "SLOTSERVE_NODE_FILE": str(self.root / "node.toml"),
            "SLOTSERVE_SCAN_SECONDS": "0.5",
            **(settings or {}),
        }
        self.controller = Process("controller", [str(BIN / "slotserve"), "serve"], self.env, self.root)
        self.agent = Process("agent", [str(BIN / "slotserve-agent"), "run"], self.env, self.root)
        self.gateway = Process("gateway", [str(BIN / "slotserve-agent"), "gateway"], self.env, self.root)
        # One client: a new one reads every certificate authority of the machine. No connection is kept: processes end.
        self.http = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=20)
        self.ports: dict[str, int] = {}
        self.keys: dict[str, str] = {}
        self.gateway_url = ""

    # --- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        try:
            self.start_controller()
            self.first_people()
            self.write_node_file()
            join = self.post("/nodes", {"name": "n1"})["join"]
            self.run_cli("slotserve-agent", "enrol", join)
            self.agent.start()
            self.gateway.start()
            self.until(lambda: self.node()["online"], 60, "the node is online")
            self.until(
                lambda: self.http.get(self.gateway_url + "/healthz").status_code == 200, 60, "the gateway answers"
            )
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: Any, value: Any, _trace: Any) -> None:
        if value is not None:
            for process in (self.controller, self.agent, self.gateway):
                print(process.tail(60))
        for process in (self.gateway, self.agent):
            with contextlib.suppress(ClusterError):
                process.stop()
        subprocess.run(
            [str(BIN / "slotserve-agent"), "stop-engines"], env=self.env, capture_output=True, timeout=60, check=False
        )
        with contextlib.suppress(ClusterError):
            self.controller.stop()
        self.http.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def start_controller(self) -> None:
        (self.root / "c" / "ports.json").unlink(missing_ok=True)
        self.controller.start()
        self.until(
            lambda: (self.root / "c" / "ports.json").exists(), self.start_seconds, "the controller has its ports"
        )
        self.ports = json.loads((self.root / "c" / "ports.json").read_text())
        # The same ports again after a restart, so that the agent finds it.
        self.env.update(
            SLOTSERVE_HTTP_LISTEN=f"127.0.0.1:{self.ports['http']}",
            SLOTSERVE_FLEET_LISTEN=f"127.0.0.1:{self.ports['fleet']}",
            SLOTSERVE_ENROL_LISTEN=f"127.0.0.1:{self.ports['enrol']}",
        )
        self.url = f"http://127.0.0.1:{self.ports['http']}"
        self.until(
            lambda: self.http.get(self.url + "/readyz").status_code == 200,
            self.start_seconds,
            "the controller is ready",
        )

    def first_people(self) -> None:
        out = self.run_cli("slotserve", "user", "add", "root", "--admin", "--password", "root-password", "--json")
        self.keys["root"] = json.loads(out)["api_key"]
        for name in ("maya", "noor", "tomas"):
            user = self.post("/users", {"name": name, "role": "user", "password": f"{name}-password"})
            self.keys[name] = self.post("/keys", {"name": "test", "user": user["id"]})["secret"]

    def write_node_file(self) -> None:
        from tests.parts import free_port

        self.gateway_url = f"http://127.0.0.1:{free_port()}"
        lines = ['node = "n1"', "[gateway]", f'listen = ["{self.gateway_url[7:]}"]']
        for name, engine in self.engines.items():
            lines += [f'[engines."{name}"]', f"command = {json.dumps([str(c) for c in engine['command']])}"]
            pairs = ", ".join(f"{k} = {json.dumps(v)}" for k, v in engine.get("env", {}).items())
            lines += [f"env = {{ {pairs} }}"] if pairs else []
        for name, channel in self.channels.items():
            lines += ["[[channels]]", f'name = "{name}"', f"model_folders = [{json.dumps(str(channel['folder']))}]"]
            lines += [f"engines = {json.dumps(channel['engines'])}"]
        (self.root / "node.toml").write_text("\n".join(lines) + "\n")

    def run_cli(self, program: str, *args: str, key: str | None = None, ok: bool = True) -> str:
        env = dict(self.env)
        if key or self.keys:
            env |= {"SLOTSERVE_URL": self.url, "SLOTSERVE_API_KEY": key or self.keys["root"]}
        done = subprocess.run(
            [str(BIN / program), *args], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        if ok and done.returncode:
            raise ClusterError(f"{program} {' '.join(args)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    # --- REST -------------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None, who: str = "root") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        return self.http.request(method, f"{self.url}/api/v1{path}", json=body, headers=headers)

    def get(self, path: str, who: str = "root") -> Any:
        return self._good(self.request("GET", path, who=who))

    def post(self, path: str, body: Any = None, who: str = "root") -> Any:
        return self._good(self.request("POST", path, body if body is not None else {}, who))

    def _good(self, answer: httpx.Response) -> Any:
        if answer.status_code >= 400:
            raise ClusterError(f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def node(self) -> Any:
        return next(n for n in self.get("/nodes")["items"] if n["name"] == "n1")

    def channel(self, name: str = "main") -> Any:
        return self.get(f"/channels/n1/{name}")

    def set_default(self, model: str | None, preset: str | None = None, channel: str = "main", **more: Any) -> None:
        if model is not None:
            self.until_known(model, f"n1/{channel}")
        body = {"default_model": model, "default_preset": preset, **more}
        self._good(self.request("PATCH", f"/channels/n1/{channel}", body))

    def until_known(self, model: str, *channels: str) -> None:
        """Waits until each of the channels can be asked for it: a node looks into its folders in its own time."""

        def look() -> bool:
            return any(m["name"] == model and set(channels) <= set(m["channels"]) for m in self.get("/models")["items"])

        self.until(look, 60, f"{model} is known on {', '.join(channels)}")

    def book(
        self, model: str | None, start: float, end: float, who: str = "maya", channel: str = "main", **more: Any
    ) -> Any:
        """Books [now + start, now + end) seconds; model None = exclusive."""
        now = time.time()
        body = {
            "channel": f"n1/{channel}",
            "kind": "model" if model else "exclusive",
            "starts_at": "now" if start <= 0 else rfc3339(now + start),
            "ends_at": rfc3339(now + end),
            **({"model": model} if model else {}),
            **more,
        }
        return self.post("/reservations", body, who)

    def calm(self, default: str, models: int, channel: str = "main") -> None:
        """Ends every booking and override, and waits until `default` serves and `models` models are known."""
        for status in ("approved", "pending"):
            for booking in self.get(f"/reservations?status={status}")["items"]:
                self.post(f"/reservations/{booking['id']}/end", {"reason": "the next test begins"})
        self.request("DELETE", f"/channels/n1/{channel}/override")
        self.until(lambda: len(self.get("/models")["items"]) == models, 20, f"{models} models are known")
        self.set_default(default)
        self.until_ready(default)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def until(self, true: Callable[[], Any], seconds: float, what: str) -> Any:
        """The first truthy answer of `true`; ClusterError naming `what` when there is none in time."""
        deadline, last = time.monotonic() + seconds, ""
        while True:
            try:
                if answer := true():
                    return answer
            except (httpx.HTTPError, ClusterError, StopIteration, OSError) as err:
                last = str(err)
            for process in (self.controller, self.agent, self.gateway):
                if process.popen is not None and process.popen.poll() not in (None, -signal.SIGKILL, 0):
                    raise ClusterError(f"{process.name} ended while waiting for: {what}\n{process.tail()}")
            if time.monotonic() > deadline:
                said = "\n".join(p.tail() for p in (self.controller, self.agent, self.gateway))
                raise ClusterError(f"not within {seconds} s: {what} (last: {last})\n{said}")
            time.sleep(0.05)

    def until_ready(self, model: str, seconds: float = 20, channel: str = "main", fallback: bool = False) -> Any:
        """The channel once it serves `model`."""

        def look() -> Any:
            c = self.channel(channel)
            same = c["running"] and c["running"]["model"] == model
            return c if same and c["phase"] == "ready" and c["fallback"] is fallback else None

        return self.until(look, seconds, f"{channel} serves {model}")

    # --- calling ----------------------------------------------------------------------------------------------------

    def openai(self, who: str, channel: str | None = None, **more: Any) -> Any:
        """The official client against this node's gateway."""
        from openai import OpenAI

        base = f"{self.gateway_url}/channels/{channel}/v1" if channel else f"{self.gateway_url}/v1"
        more.setdefault("max_retries", 0)
        return OpenAI(base_url=base, api_key=self.keys.get(who, who), timeout=60, **more)

    def chat(self, who: str, model: str = "auto", channel: str | None = None, **body: Any) -> httpx.Response:
        """One chat completion as a plain request."""
        path = f"/channels/{channel}/v1/chat/completions" if channel else "/v1/chat/completions"
        headers = {"Authorization": f"Bearer {self.keys[who]}"} if who in self.keys else {}
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, **body}
        return self.http.post(self.gateway_url + path, json=body, headers=headers, timeout=60)

    def engine_pids(self, channel: str = "main") -> list[int]:
        """Pids of the channel's engine as its run record says."""
        record = self.root / "a" / "channels" / channel / "run.json"
        try:
            return [json.loads(record.read_text())["engine_pid"]]
        except (FileNotFoundError, KeyError, json.JSONDecodeError):
            return []


def rfc3339(seconds: float) -> str:
    """A time of time.time() as REST takes it, to the millisecond."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


@contextlib.contextmanager
def running(*args: Any, **kwargs: Any) -> Iterator[Cluster]:
    """Shorthand for fixtures."""
    with Cluster(*args, **kwargs) as cluster:
        yield cluster
