"""The sockets that a gateway listens on: made from addresses, or handed over by systemd."""

from __future__ import annotations

import os
import socket
import stat

BACKLOG = 2048
FIRST_HANDED_FD = 3
GONE_SECONDS = 120  # until a client is given up that is not there any more and could not say so


class ListenError(OSError):
    """An address cannot be listened on; the message names it and says why."""


def bind(address: str, setting: str = "gateway.listen", mode: int = 0o660) -> socket.socket:
    """A listening socket for host:port, [v6]:port or unix:/path (`mode`: of its file, whatever the umask says). Raises
    ListenError."""
    try:
        if address.startswith("unix:"):
            return _bind_unix(address.removeprefix("unix:"), mode)
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            raise ListenError(f"{setting}: {address!r} is not host:port, [v6]:port or unix:/path")
        host = host.removeprefix("[").removesuffix("]")
        family, kind, proto, _, where = socket.getaddrinfo(
            host or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        server = socket.socket(family, kind, proto)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(where)
        server.listen(BACKLOG)
        server.setblocking(False)
        return server
    except ListenError:
        raise
    except (OSError, OverflowError) as err:
        reason = getattr(err, "strerror", None) or err
        raise ListenError(f"{setting}: cannot listen on {address!r}: {reason}") from err


def handed_over() -> list[socket.socket]:
    """The listening sockets that systemd (or a predecessor) hands over by LISTEN_FDS; none where it does not."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    number = int(os.environ.get("LISTEN_FDS") or 0)
    sockets = [socket.socket(fileno=fd) for fd in range(FIRST_HANDED_FD, FIRST_HANDED_FD + number)]
    for each in sockets:
        each.setblocking(False)
        os.set_inheritable(each.fileno(), False)
    return sockets


def notice_the_gone(sock: socket.socket) -> None:
    """Lets the kernel ask after peers that say nothing (asleep, unplugged); what a server accepts takes this over."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, GONE_SECONDS // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, GONE_SECONDS // 8)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def _bind_unix(path: str, mode: int) -> socket.socket:
    if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
        probe = socket.socket(socket.AF_UNIX)
        try:
            probe.connect(path)
        except OSError:
            os.unlink(path)  # left behind by a process that is gone
        else:
            raise ListenError(f"gateway.listen: somebody listens on 'unix:{path}' already")
        finally:
            probe.close()
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    os.chmod(path, mode)  # nobody gets in before it listens
    server.listen(BACKLOG)
    server.setblocking(False)
    return server
