"""Where the gateway listens: sockets of its own and those that systemd hands over, who may open them, what is refused."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from agent.gateway.listen import GONE_SECONDS, bind, notice_the_gone
from tests.fakes.gateway_place import RUN, Place
from tests.fakes.gateway_rig import chat, read_answer
from tests.parts import free_port

pytestmark = pytest.mark.system


def test_sockets_handed_over(place: Place) -> None:
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen()
    port = door.getsockname()[1]
    place.save()
    script = (
        "import os, sys\nos.dup2(int(sys.argv[1]), 3)\nos.environ |= {'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'}\n"
        + RUN
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(door.fileno())],
        env=place.env,
        pass_fds=[door.fileno()],
        start_new_session=True,
    )
    door.close()
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=10)
        assert answer.json()["status"] == "ok"
    finally:
        process.terminate()
        assert process.wait(10) == 0


def test_every_kind_of_address(place: Place) -> None:
    """IPv4, IPv6, a name, Unix sockets: the same gateway behind each."""

    async def test() -> None:
        await place.engine.start()
        place.save()
        ports = [free_port() for _ in range(3)]
        tcp = [("127.0.0.1", ports[0]), ("::1", ports[1]), ("localhost", ports[2])]
        addresses = [f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in tcp]
        place.listen(f"unix:{place.folder}/gateway.sock", f"unix:{place.folder}/second.sock", *addresses)
        with place.gateway() as child:
            assert (place.folder / "second.sock").stat().st_mode & 0o777 == 0o660
            opened = [await asyncio.open_connection(host, port) for host, port in tcp]
            opened += [
                await asyncio.open_unix_connection(str(place.folder / f"{name}.sock")) for name in ("gateway", "second")
            ]
            for reader, writer in opened:
                for _ in range(2):
                    writer.write(chat())
                    assert (await read_answer(reader)).status == 200
            for _, writer in opened:
                writer.close()
            assert child.alive()
        assert not (await asyncio.to_thread(place.answers))
        with place.gateway():  # a socket's file that was left behind is no hindrance
            assert place.answers()
        await place.engine.stop()

    asyncio.run(test())


def test_the_kernel_asks_after_clients_that_say_nothing() -> None:
    with bind("127.0.0.1:0") as server, socket.socket() as client:
        notice_the_gone(server)
        server.setblocking(True)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            said = [accepted.getsockopt(socket.IPPROTO_TCP, x) for x in (socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)]
            idle = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            assert idle + said[0] * said[1] == GONE_SECONDS


@pytest.mark.parametrize(("mode", "umask"), [(0o660, 0o022), (0o600, 0o000), (0o666, 0o077)])
def test_who_may_open_a_unix_socket_is_said_not_left_to_the_umask(tmp_path: Path, mode: int, umask: int) -> None:
    before = os.umask(umask)
    try:
        with bind(f"unix:{tmp_path}/s", mode=mode):
            assert (tmp_path / "s").stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("nonsense", "is not host:port"),
        ("127.0.0.1:99999", "is not host:port"),
        ("unix:/nowhere/at/all.sock", "cannot listen on"),
        ("256.1.1.1:80", "cannot listen on"),
    ],
)
def test_addresses_that_cannot_be_listened_on(place: Place, listen: str, words: str) -> None:
    place.listen(listen)
    done = subprocess.run([sys.executable, "-c", RUN], env=place.env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert words in done.stderr
    assert "gateway.listen" in done.stderr
    assert "Traceback" not in done.stderr
