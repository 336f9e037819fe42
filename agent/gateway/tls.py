"""TLS of the gateway's TCP addresses, by setting (tls_certificate, tls_key). Files that change are read again without a
restart: new connections get the new certificate, those that run keep what they have."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

log = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
HANDSHAKE_SECONDS = 30.0
SHUTDOWN_SECONDS = 5.0


class TlsError(ValueError):
    """A certificate that cannot be used; the message names the settings and the reason."""


class Tls:
    """`context` is for the servers, and the same always; what it presents is `look`'s latest."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises TlsError."""
        self._files = (certificate, key)
        self._seen = self._state()
        self._current = self._read()
        self.context = _context()
        self.context.load_cert_chain(*self._files)
        self.context.sni_callback = self._present

    def look(self) -> bool:
        """Reads the files again where they have changed. A pair that does not fit, for only one file has been written
        yet, changes nothing: the next look sees to it."""
        state = self._state()
        if state == self._seen:
            return False
        try:
            self._current = self._read()
        except TlsError as err:
            log.warning("certificate not taken, the one before stays error=%s", err)
            return False
        self._seen = state
        log.info("certificate read again file=%s", self._files[0])
        return True

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def _present(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _read(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = _context()
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as err:  # ssl.SSLError is an OSError
            reason = err.strerror if isinstance(err, OSError) and err.strerror else err
            raise TlsError(f"gateway.tls_certificate {certificate}, gateway.tls_key {key}: {reason}") from err
        return context

    def _state(self) -> tuple[object, ...]:
        """What tells that a file is another: links are followed, as those that ACME clients and mounts switch."""
        found: list[object] = []
        for file in self._files:
            try:
                stat = file.stat()
            except OSError:
                found.append(None)
            else:
                found += (stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_dev)
        return tuple(found)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; a service has nobody to ask for its password")
