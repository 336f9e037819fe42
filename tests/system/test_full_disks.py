"""Disks that are really full (small tmpfs): the controller's, with database and logs, and the node's state folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.spool import Item, Spool
from controller.fleet.logs import Launch, LogStore
from tests.parts import fill, small_disk
from tests.system.cluster import Cluster
from tests.system.conftest import SIMULATED
from tests.system.test_degradation import channel, later, refused, told_of_beta

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]
MB = 1 << 20


def test_the_controllers_disk(tmp_path: Path) -> None:
    c = Cluster(SIMULATED, channel(tmp_path))
    with small_disk(c.root / "c", 40 * MB), c:
        c.set_default("alpha")
        c.until_ready("alpha")
        pids = c.engine_pids()
        filled = fill(c.root / "c")
        said = c.until(lambda: refused(c.request("POST", "/reservations", later(), "maya")), 30, "it is full")
        assert "disk is full or fails" in said["error"]["message"]
        assert c.channel()["phase"] == "ready"  # reading goes on
        assert c.chat("maya", "alpha").status_code == 200
        filled.unlink()
        made = c.until(lambda: booked(c), 60, "there is room again")
        c.set_default("beta")
        c.until_ready("beta", 60)
        assert c.get(f"/reservations/{made}")["status"] == "approved"
        c.until(lambda: "beta" in c.get("/channels/n1/main/log?offset=-2000")["text"], 60, "logs go on")
        assert "Traceback" not in c.controller.output.read_text()
        assert c.engine_pids() != pids


def test_the_nodes_disk(tmp_path: Path) -> None:
    c = Cluster(SIMULATED, channel(tmp_path))
    with small_disk(c.root / "a", 40 * MB), c:
        c.set_default("alpha")
        c.until_ready("alpha")
        filled = fill(c.root / "a")
        assert c.chat("maya", "alpha").status_code == 200
        c.set_default("beta")
        c.until(lambda: c.node()["plan"]["accepted"], 60, "the plan is taken")
        shown = c.until(lambda: told_of_beta(c.channel()), 60, "beta runs, or the channel says why not")
        print("a full node, asked to switch:", shown)
        assert "GB are free where" in c.run_cli("slotserve-agent", "status")
        filled.unlink()
        c.until_ready("beta", 60)  # by itself
        assert c.chat("maya", "beta").status_code == 200
        assert "Traceback" not in c.agent.output.read_text()


def test_reports_that_found_no_room_spoil_no_others(tmp_path: Path) -> None:
    with small_disk(tmp_path / "d", 64 << 10):
        spool = Spool(tmp_path / "d" / "spool.jsonl")
        spool.add([Item("first", "event", b"1")])
        filled = fill(tmp_path / "d")
        with pytest.raises(OSError, match="No space left"):
            spool.add([Item("big", "event", b"x" * 20_000)])
        filled.unlink()
        spool.add([Item("last", "event", b"3")])
        assert [i.id for i in Spool(tmp_path / "d" / "spool.jsonl").items()] == ["first", "last"]


def test_logs_that_found_no_room_go_on(tmp_path: Path) -> None:
    launch, offset, text = Launch("l1", 1, "m", None, ""), 0, b""
    with small_disk(tmp_path / "d", 256 << 10):
        store = LogStore(tmp_path / "d")
        offset = store.append("n", "c", launch, 0, b"begin ")
        filled = fill(tmp_path / "d")
        text = b"0123456789abcdef" * 1000
        with pytest.raises(OSError, match="No space left"):
            store.append("n", "c", launch, offset, text)
        filled.unlink()
        held = store.append("n", "c", launch, 0, b"")
        assert store.append("n", "c", launch, held, (b"begin " + text)[held:]) == 6 + len(text)
        piece = store.read("n", "c", 0, 100_000)
        assert piece is not None
        assert piece["text"] == "begin " + text.decode()


def booked(c: Cluster) -> str:
    answer = c.request("POST", "/reservations", later(), "maya")
    return str(answer.json()["id"]) if answer.status_code == 201 else ""
