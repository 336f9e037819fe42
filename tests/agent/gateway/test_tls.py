"""TLS at the gateway's TCP addresses: everything passes as without, and a new certificate needs no restart."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import json
import os
import ssl
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.check import problems
from agent.gateway.listen import notice_the_gone
from agent.gateway.tls import Tls, TlsError
from agent.node import gateway_url
from agent.settings import AgentSettings, GatewayConfig, NodeFile
from tests.fakes.gateway_rig import Rig, chat, read_answer, request
from tests.fakes.stub_engine import SSE_HEAD, Seen, stream_for_ever, token
from tests.parts import Child, free_port, start, wait_until

RUN = "import sys\nfrom agent.gateway.main import run\nfrom agent.settings import AgentSettings\nsys.exit(run(AgentSettings()))"


def write_certificate(folder: Path, days: int = 1, password: bytes | None = None) -> int:
    """Certificate and key for this machine; the serial number."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost")] + [x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", "::1")]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    )
    (folder / "tls.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return certificate.serial_number


def made(folder: Path) -> Tls:
    write_certificate(folder)
    return Tls(folder / "tls.pem", folder / "tls.key")


def trust(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "tls.pem"))


class TlsRig(Rig):
    """The rig with a second address, for TLS."""

    async def __aenter__(self) -> TlsRig:
        await super().__aenter__()
        self.tls = made(self.folder)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self.gateway.connection, "127.0.0.1", 0, ssl=self.tls.context)
        notice_the_gone(server.sockets[0])
        self.tls_port = server.sockets[0].getsockname()[1]
        self.tls_server = server
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.tls_server.close()
        await super().__aexit__(*exc)

    async def open(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.tls_port, ssl=trust(self.folder))
        writer.write(data)
        return reader, writer


def run_tls(test: Callable[[TlsRig], Awaitable[None]]) -> None:
    async def main() -> None:
        async with TlsRig() as rig:
            await test(rig)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def serial(writer: asyncio.StreamWriter) -> int:
    presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(presented).serial_number


def test_requests_streams_and_their_ends() -> None:
    async def three(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for word in ("a", "b", "c"):
            await seen.chunk(token(word))
        await seen.send(b"0\r\n\r\n")

    async def test(rig: TlsRig) -> None:
        await rig.serve_default()
        reader, writer = await rig.open(b"")
        for _ in range(3):
            writer.write(chat())
            assert (await read_answer(reader)).json()["model"] == "default-model"
        rig.engine.behaviour = three
        writer.write(chat(True))
        assert (await read_answer(reader)).body == token("a") + token("b") + token("c")
        rig.engine.behaviour = stream_for_ever
        writer.write(chat(True))
        seen = await rig.engine.next(5)
        await reader.readuntil(b"\n\n")
        writer.transport.abort()
        await asyncio.wait_for(seen.gone.wait(), 20)
        await rig.drained()
        reader, writer = await rig.open(chat(True))
        await reader.readuntil(b"\n\n")
        (await rig.engine.next(6)).writer.transport.abort()
        rest = await asyncio.wait_for(reader.read(), 20)
        assert not rest.endswith(b"0\r\n\r\n"), "no clean end"
        writer.close()
        await rig.drained()

    run_tls(test)


def test_big_bodies_and_slow_readers() -> None:
    async def flood(seen: Seen) -> None:
        await seen.send(SSE_HEAD)
        for _ in range(4000):  # 64 MB
            await seen.chunk(b"data: " + b"x" * 16_000 + b"\n\n")

    async def test(rig: TlsRig) -> None:
        await rig.serve_default()
        body = b'{"model": "auto", "input": "' + b"x" * 20_000_000 + b'"}'
        reader, writer = await rig.open(request("/v1/embeddings", body))
        assert (await read_answer(reader)).status == 200
        assert rig.engine.seen[0].body == body.replace(b"auto", b"default-model")
        rig.engine.behaviour = flood
        writer.write(chat(True))
        writer.transport.pause_reading()
        seen = await rig.engine.next(2)
        await rig.until(lambda: seen.writer.transport.get_write_buffer_size() > 0)  # the engine is held back
        (connection,) = rig.gateway.connections
        assert connection.transport.get_write_buffer_size() < 1_000_000
        writer.transport.resume_reading()
        await reader.readexactly(3_000_000)
        writer.transport.abort()
        await asyncio.wait_for(seen.gone.wait(), 20)
        await rig.drained()

    run_tls(test)


def test_websocket() -> None:
    offer = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"

    async def talks(seen: Seen) -> None:
        await seen.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x02hi"
        )
        await seen.gone.wait()

    async def test(rig: TlsRig) -> None:
        await rig.serve_default()
        rig.engine.behaviour = talks
        reader, writer = await rig.open(request("/v1/realtime", b"", "tomas", "GET", offer))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        assert await reader.readexactly(4) == b"\x81\x02hi"
        writer.write(b"\x81\x82abcdXY")
        seen = rig.engine.seen[0]
        await rig.until(lambda: seen.later == b"\x81\x82abcdXY")
        rig.gateways.cut("main", 9)
        assert (await asyncio.wait_for(reader.read(), 20))[2:4] == (1012).to_bytes(2, "big")
        writer.close()
        await rig.drained()

    run_tls(test)


def test_refusals_and_what_is_no_tls() -> None:
    async def test(rig: TlsRig) -> None:
        reader, writer = await rig.open(chat(who="eve"))
        assert (await read_answer(reader)).status == 401
        writer.close()
        reader, writer = await rig.open(b"POST / HTTP/1.1\r\nBad Header: x\r\n\r\n")
        assert (await read_answer(reader)).status == 400
        assert await asyncio.wait_for(reader.read(), 20) == b""
        plain_reader, plain_writer = await asyncio.open_connection("127.0.0.1", rig.tls_port)
        plain_writer.write(chat())
        assert b"HTTP/1.1 200" not in await asyncio.wait_for(plain_reader.read(), 20)
        for each in (writer, plain_writer):
            each.close()

    run_tls(test)


def test_versions_before_1_2_are_not_spoken() -> None:
    async def test(rig: TlsRig) -> None:
        for version in (ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trust(rig.folder)
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            with warnings.catch_warnings(action="ignore"):
                context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", rig.tls_port, ssl=context)
            except (ssl.SSLError, ConnectionError):
                assert version == ssl.TLSVersion.TLSv1_1
            else:
                assert version >= ssl.TLSVersion.TLSv1_2
                assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
                writer.close()

    run_tls(test)


def test_a_new_certificate_is_taken_while_connections_go_on() -> None:
    async def test(rig: TlsRig) -> None:
        await rig.serve_default()
        assert not rig.tls.look()
        old_reader, old_writer = await rig.open(chat())
        assert (await read_answer(old_reader)).status == 200
        first = serial(old_writer)
        key = (rig.folder / "tls.key").read_bytes()
        second = write_certificate(rig.folder)
        (new_key := rig.folder / "new.key").write_bytes((rig.folder / "tls.key").read_bytes())
        (rig.folder / "tls.key").write_bytes(key)  # only half of the pair is there yet
        assert not rig.tls.look()
        context = trust(rig.folder)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", rig.tls_port, ssl=context)
        assert serial(writer) == first
        writer.close()
        os.replace(new_key, rig.folder / "tls.key")
        assert rig.tls.look()
        assert not rig.tls.look()
        reader, writer = await rig.open(chat())
        assert serial(writer) == second
        assert (await read_answer(reader)).status == 200
        old_writer.write(chat())
        assert (await read_answer(old_reader)).status == 200, "the old connection goes on"
        (rig.folder / "tls.pem").unlink()
        assert not rig.tls.look(), "a file that is gone changes nothing"
        for each in (writer, old_writer):
            each.close()

    run_tls(test)


@pytest.mark.parametrize("what", ["no file", "no certificate", "another key", "encrypted"])
def test_certificates_that_cannot_be_used(tmp_path: Path, what: str) -> None:
    write_certificate(tmp_path, password=b"secret" if what == "encrypted" else None)
    if what == "no file":
        (tmp_path / "tls.key").unlink()
    elif what == "no certificate":
        (tmp_path / "tls.pem").write_text("nonsense")
    elif what == "another key":
        certificate = (tmp_path / "tls.pem").read_bytes()
        write_certificate(tmp_path)
        (tmp_path / "tls.pem").write_bytes(certificate)
    with pytest.raises(TlsError, match=r"gateway\.tls_certificate .*tls\.pem.* gateway\.tls_key .*tls\.key"):
        Tls(tmp_path / "tls.pem", tmp_path / "tls.key")


def test_the_node_file_is_checked_and_the_address_is_of_tls(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    files = {"tls_certificate": tmp_path / "tls.pem", "tls_key": tmp_path / "tls.key"}
    file = NodeFile(node="n", gateway=GatewayConfig(listen=["0.0.0.0:8710"], **files))
    assert gateway_url(file) == "https://n:8710"
    assert not [p for p in problems(file, AgentSettings()) if "tls" in p]
    (tmp_path / "tls.key").unlink()
    assert [p for p in problems(file, AgentSettings()) if "gateway.tls_key" in p and "No such file" in p]


def test_settings_that_belong_together() -> None:
    with pytest.raises(ValueError, match="belong together"):
        GatewayConfig(tls_certificate=Path("a"))
    assert NodeFile(node="n").gateway.tls is None


@contextmanager
def gateway(folder: Path, listen: list[str], **env: str) -> Iterator[Child]:
    """A process with a certificate; answers at a Unix socket without, everywhere else with TLS."""
    lines = [f"listen = {json.dumps([f'unix:{folder}/g.sock', *listen])}"]
    lines += [f'tls_certificate = "{folder}/tls.pem"', f'tls_key = "{folder}/tls.key"']
    (folder / "node.toml").write_text('node = "n"\n[gateway]\n' + "\n".join(lines) + "\n")
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path.cwd()),
        "SLOTSERVE_NODE_FILE": str(folder / "node.toml"),
        "SLOTSERVE_AGENT_STATE_DIR": str(folder / "state"),
        **env,
    }
    child = start([sys.executable, "-c", RUN], folder / "gateway.log", env)
    try:
        wait_until(lambda: healthy(folder) or not child.alive(), 20, "the gateway answers")
        yield child
    finally:
        child.stop()


def healthy(folder: Path) -> bool:
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(folder / "g.sock"))) as client:
            return client.get("http://g/healthz").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.system
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_process_with_a_certificate(tmp_path: Path, workers: str) -> None:
    write_certificate(tmp_path)
    port = free_port()
    with gateway(tmp_path, [f"127.0.0.1:{port}", f"[::1]:{port}"], SLOTSERVE_GATEWAY_WORKERS=workers) as child:
        assert child.alive(), child.output()
        for host in ("127.0.0.1", "[::1]"):
            with httpx.Client(verify=trust(tmp_path)) as client:
                assert client.get(f"https://{host}:{port}/healthz").json()["status"] == "ok"
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"http://{host}:{port}/healthz")


@pytest.mark.system
def test_a_process_that_cannot_use_its_certificate_says_so(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    (tmp_path / "tls.key").unlink()
    with gateway(tmp_path, []) as child:
        assert not child.alive()
    said = (tmp_path / "gateway.log").read_text()
    assert "gateway.tls_key" in said
    assert "No such file" in said
    assert "Traceback" not in said
