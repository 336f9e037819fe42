"""Two nodes whose gateways relay to each other, in the test's own loop."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.enrolment import _request
from agent.gateway.listen import bind
from agent.gateway.relay import RelayDoor, Relays
from agent.state import Identity, State
from controller.fleet.ca import CertificateAuthority
from tests.fakes.gateway_rig import NOW, Rig, run, target

FAR = target("far-model")


def enrol(folder: Path, node: str, ca: CertificateAuthority, trusts: CertificateAuthority | None = None) -> Relays:
    """A node's state folder with a certificate of `ca`."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    certificate = ca.sign_csr(_request(key, node), node).pem.encode()
    trusted = (trusts or ca).certificate_pem().encode()
    State(folder).save_identity(Identity(pem, certificate, trusted, "c:1", renew_at=0))
    relays = Relays(folder)
    assert relays.look()
    return relays


def place(port: int, model: str = "far-model", node: str = "n2", **more: Any) -> dict[str, Any]:
    return {
        "node": node,
        "channel": "main",
        "url": f"http://{node}:8710",
        "relay": f"127.0.0.1:{port}",
        "model": model,
        "preset": None,
        "ready": True,
        "from_ms": NOW - 1000,
        "until_ms": 0,
        "windows": [],
        **more,
    }


class Pair:
    """n1 with nothing but `default-model`, n2 with `far-model`; `near` is called, `far` answers."""

    def __init__(self, near: Rig, far: Rig, folder: Path) -> None:
        self.near, self.far, self.folder = near, far, folder
        self.ca = CertificateAuthority(folder / "ca")

    async def start(self) -> None:
        near, far = self.near, self.far
        near.gateway.node, far.gateway.node = "n1", "n2"
        near.gateway.relays = enrol(self.folder / "n1", "n1", self.ca)
        self.listening = bind("127.0.0.1:0")
        self.port = self.listening.getsockname()[1]
        self.door = RelayDoor(enrol(self.folder / "n2", "n2", self.ca), far.gateway.relay_connection, self.listening)
        self.watch = asyncio.create_task(self.door.watch())
        await near.serve_default()
        await far.publish(far.entry(serving=FAR))
        await self.say(place(self.port))
        await near.until(lambda: self.door._server is not None)

    async def say(self, *places: dict[str, Any]) -> None:
        self.near.gateways.set_directory(list(places))
        names = {p["model"] for p in places}
        await self.near.until(lambda: set(self.near.gateway.directory.by_name) == names)

    async def stop(self) -> None:
        self.watch.cancel()
        await asyncio.gather(self.watch, return_exceptions=True)
        self.listening.close()


def pair(test: Callable[[Pair], Awaitable[None]]) -> None:
    async def both(near: Rig) -> None:
        with tempfile.TemporaryDirectory(prefix="ssrl") as folder:
            async with Rig() as far:
                there = Pair(near, far, Path(folder))
                try:
                    await there.start()
                    await test(there)
                finally:
                    await there.stop()

    run(both)
