"""A mail server that keeps what it is given: `python -m tests.fakes.smtp_sink FOLDER [security] [user:password]`.

Mails are written to FOLDER/mails.jsonl, a line each {from, to, data}; the port stands in FOLDER/port when it listens.
How it behaves is read from FOLDER/behave at each mail: `busy` (451), `full` (552), `hang`; nobody has the address
nobody@… (550), later@… is busy (450). `security`: none, starttls or tls with FOLDER/cert.pem and FOLDER/key.pem.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope


class Keeper:
    """aiosmtpd's handler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Envelope, address: str, _options: Any) -> str:
        if address.startswith("nobody@"):
            return "550 5.1.1 no such mailbox"
        if address.startswith("later@"):
            return "450 4.2.1 try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:
        behave = self._folder / "behave"
        match behave.read_text().strip() if behave.exists() else "":
            case "busy":
                return "451 4.3.0 busy"
            case "full":
                return "552 5.3.4 message too big"
            case "hang":
                await asyncio.sleep(3600)
        content = envelope.content
        data = content.decode("utf-8", "replace") if isinstance(content, bytes) else str(content)
        line = json.dumps({"from": envelope.mail_from, "to": envelope.rcpt_tos, "data": data})
        with open(self._folder / "mails.jsonl", "a") as out:
            out.write(line + "\n")
        return "250 kept"


async def serve(folder: Path, security: str, login: str) -> None:
    """Until killed."""
    tls = None
    if security != "none":
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    def checked(_server: Any, _session: Any, _envelope: Any, mechanism: str, data: Any) -> AuthResult:
        good = mechanism in ("LOGIN", "PLAIN") and f"{data.login.decode()}:{data.password.decode()}" == login
        return AuthResult(success=good, handled=good)

    def session() -> SMTP:
        return SMTP(
            Keeper(folder),
            hostname="sink.example",
            enable_SMTPUTF8=True,
            tls_context=tls if security == "starttls" else None,
            require_starttls=security == "starttls",
            auth_required=bool(login),
            auth_require_tls=False,
            authenticator=checked if login else None,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(session, "127.0.0.1", 0, ssl=tls if security == "tls" else None)
    (folder / "port.new").write_text(str(server.sockets[0].getsockname()[1]))
    (folder / "port.new").rename(folder / "port")
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), *(sys.argv[2:] + ["none", ""][len(sys.argv) - 2 :])))
