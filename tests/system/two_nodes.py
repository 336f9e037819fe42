"""Two real nodes, each with agent and gateway, below one controller: n1, the cluster's own, and n2."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tests.parts import free_port
from tests.system.cluster import BIN, Cluster, ClusterError, Process
from tests.system.conftest import SIMULATED


class TwoNodes(Cluster):
    """n1 relays what it does not serve, n2 does not; both take relays. `folders`: of n1's models and of n2's."""

    def __init__(self, folders: tuple[Path, Path]) -> None:
        self.folders = folders
        super().__init__(
            SIMULATED, {"main": {"folder": folders[0], "engines": ["simulated"]}}, {"SLOTSERVE_GATEWAY_RELAY": "1"}
        )
        self.second_file = self.root / "n2.toml"
        self.second_env = self.env | {
            "SLOTSERVE_AGENT_STATE_DIR": str(self.root / "b"),
            "SLOTSERVE_NODE_FILE": str(self.second_file),
            "SLOTSERVE_GATEWAY_RELAY": "0",
            "SLOTSERVE_GATEWAY_WORKERS": "2",
        }
        self.second_agent = Process("agent-2", [str(BIN / "slotserve-agent"), "run"], self.second_env, self.root)
        self.second_gateway = Process(
            "gateway-2", [str(BIN / "slotserve-agent"), "gateway"], self.second_env, self.root
        )
        self.second_url = ""
        self.relays: dict[str, str] = {}

    def __enter__(self) -> TwoNodes:
        super().__enter__()
        try:
            self.start_second()
        except BaseException:
            self.__exit__(ClusterError, ClusterError("the second node"), None)
            raise
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        for process in (self.second_gateway, self.second_agent):
            if value is not None:
                print(process.tail(60))
            process.stop()
        command = [str(BIN / "slotserve-agent"), "stop-engines"]
        subprocess.run(command, env=self.second_env, capture_output=True, timeout=60, check=False)
        super().__exit__(kind, value, trace)

    def write_node_file(self) -> None:
        super().write_node_file()
        self.second_url = f"http://127.0.0.1:{free_port()}"
        self.relays = {name: f"127.0.0.1:{free_port()}" for name in ("n1", "n2")}
        own = (self.root / "node.toml").read_text()
        (self.root / "node.toml").write_text(self._with_relay(own, "n1"))
        other = own.replace('"n1"', '"n2"').replace(self.gateway_url[7:], self.second_url[7:])
        self.second_file.write_text(self._with_relay(other.replace(*map(str, self.folders)), "n2"))

    def start_second(self) -> None:
        join = self.post("/nodes", {"name": "n2"})["join"]
        command = [str(BIN / "slotserve-agent"), "enrol", join]
        subprocess.run(command, env=self.second_env, check=True, capture_output=True, timeout=60)
        self.second_agent.start()
        self.second_gateway.start()
        self.until(
            lambda: self.http.get(self.second_url + "/healthz").status_code == 200, 20, "the second gateway answers"
        )
        self.until(lambda: self.request("GET", "/channels/n2/main").status_code == 200, 20, "its channel is there")

    def _with_relay(self, text: str, node: str) -> str:
        return text.replace("[gateway]", f'[gateway]\nrelay_listen = "{self.relays[node]}"')

    def second(self) -> Any:
        """n2's channel."""
        return self.get("/channels/n2/main")

    def second_default(self, model: str) -> None:
        self.until_known(model, "n2/main")
        self._good(self.request("PATCH", "/channels/n2/main", {"default_model": model}))

    def second_ready(self, model: str) -> None:
        def look() -> bool:
            c = self.second()
            return bool(c["running"] and c["running"]["model"] == model and c["phase"] == "ready")

        self.until(look, 30, f"n2 serves {model}")

    def known(self, model: str, where: str, served: bool = True, url: str = "") -> Any:
        """Waits until a node's gateway says that `model` is on `where`; its error (asked in a path: never relayed)."""

        def look() -> Any:
            answer = self.http.get(f"{url or self.gateway_url}/v1/models/{model}", headers=self.headers("maya"))
            error = answer.json().get("error", {})
            found = [p for p in error.get("elsewhere", ()) if p["channel"] == where and p["served"] is served]
            return error if found else None

        return self.until(look, 20, f"{model} is known to be on {where}")

    def headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[who]}"}
