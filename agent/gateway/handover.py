"""A planned restart without a gap: a gateway that starts while one runs is given its listening sockets.

    the running one    `Offer`: a Unix socket in the run folder (a dot in front: no channel is called that)
    the new one        `take_over`: connects, gets the sockets with their addresses, says `serving` once it accepts

The new one is started by anybody, by `replace` (which waits for it), or by the running one on SIGUSR2.

From then on the old one accepts nothing more and goes on to its last stream. Until then nothing has changed: where the
new one fails, the old one has never stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from protos.shared.systemd import notify

log = logging.getLogger(__name__)
NAME = ".handover.sock"
SERVING = b"serving"
MOST_SOCKETS = 200
MESSAGE_BYTES = 256 * 1024
SECONDS = 3.0
REPLACE_SECONDS = 30.0
READY_FD = "SLOTSERVE_GATEWAY_READY_FD"
BETWEEN = "import os, sys; os.fork() or os.execv(sys.argv[1], sys.argv[1:])"
_between: list[subprocess.Popen[bytes]] = []


class Offer:
    """The listening sockets by their addresses, for whoever comes to take over; `on_taken` is called once."""

    def __init__(self, run_dir: Path, sockets: Mapping[str, socket.socket], on_taken: Callable[[], None]) -> None:
        self._path = run_dir / NAME
        self._sockets = dict(sockets)
        self._on_taken = on_taken
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._visitors: set[socket.socket] = set()

    def open(self) -> None:
        """From now on there is somebody to take over from. In place of a predecessor's, in one step."""
        fresh = self._path.with_name(f"{NAME}.{os.getpid()}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.unlink(missing_ok=True)
            listener.bind(str(fresh))
            fresh.chmod(0o600)
            listener.listen(4)
            listener.setblocking(False)
            fresh.rename(self._path)
        except OSError as err:
            listener.close()
            log.warning("no hand-over possible, a restart will have a gap socket=%s error=%s", self._path, err)
            return
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._visit, listener)

    def close(self, gone: bool = True) -> None:
        """Nobody can take over any more; `gone`: nobody has, so the socket's file goes as well."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
            if gone:
                self._path.unlink(missing_ok=True)
        for visitor in tuple(self._visitors):
            self._leave(visitor)

    def _visit(self, listener: socket.socket) -> None:
        try:
            visitor, _ = listener.accept()
        except OSError:
            return
        names = json.dumps(list(self._sockets)).encode()
        try:
            visitor.settimeout(SECONDS)
            socket.send_fds(visitor, [names], [s.fileno() for s in self._sockets.values()])
            visitor.setblocking(False)
        except OSError as err:
            log.warning("hand-over broke off error=%s", err)
            visitor.close()
            return
        log.info("a new gateway has come to take over sockets=%s", len(self._sockets))
        self._visitors.add(visitor)
        self._loop.add_reader(visitor.fileno(), self._hear, visitor)

    def _hear(self, visitor: socket.socket) -> None:
        try:
            said = visitor.recv(64)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self._leave(visitor)
        if said == SERVING:
            self.close(gone=False)
            self._on_taken()
        else:
            log.warning("the new gateway has gone without serving; this one goes on")

    def _leave(self, visitor: socket.socket) -> None:
        self._loop.remove_reader(visitor.fileno())
        self._visitors.discard(visitor)
        visitor.close()


class Predecessor:
    """A gateway that runs and has given its sockets."""

    def __init__(self, connection: socket.socket, sockets: dict[str, socket.socket]) -> None:
        self._connection, self._sockets = connection, sockets

    def pick(self, address: str) -> socket.socket | None:
        """Its socket for an address; None: it has none."""
        return self._sockets.pop(address, None)

    def pick_all(self, prefix: str) -> list[socket.socket]:
        """Those whose name begins so, in the order that it has them in."""
        return [self._sockets.pop(name) for name in [*self._sockets] if name.startswith(prefix)]

    def serving(self) -> None:
        """This process accepts now; the other stops."""
        with contextlib.suppress(OSError):
            self._connection.send(SERVING)
        self.close()

    def close(self) -> None:
        """Its remaining sockets are not wanted here."""
        self._connection.close()
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()


def take_over(run_dir: Path) -> Predecessor | None:
    """The gateway that runs already with this run folder; None where none does, or none that answers."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(SECONDS)
    fds: list[int] = []
    try:
        connection.connect(str(run_dir / NAME))
        data, fds, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, MOST_SOCKETS)
        names = [str(name) for name in json.loads(data)]
        if len(names) != len(fds):
            raise ValueError(f"{len(names)} addresses, {len(fds)} sockets")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except (OSError, ValueError, TypeError) as err:
        log.warning("the gateway that runs does not hand over error=%s", err)
        for fd in fds:
            os.close(fd)
        connection.close()
        return None
    sockets = {name: socket.socket(fileno=fd) for name, fd in zip(names, fds, strict=True)}
    for each in sockets.values():
        each.setblocking(False)
    log.info("taking over from the gateway that runs sockets=%s", len(sockets))
    return Predecessor(connection, sockets)


def offered(
    run_dir: Path, sockets: Mapping[str, socket.socket], before: Predecessor | None, on_taken: Callable[[], None]
) -> Offer:
    """This process accepts now: it takes its predecessor's place, and can be taken over from itself."""
    if before is not None:
        before.serving()
    offer = Offer(run_dir, sockets, on_taken)
    offer.open()
    notify("READY=1", f"MAINPID={os.getpid()}")  # the service's main process from now on
    if (waits := os.environ.pop(READY_FD, "")).isdigit():
        os.write(int(waits), b"r")
        os.close(int(waits))
    return offer


def replace(command: Sequence[str]) -> str:
    """Starts `command`, a gateway that takes over from the one that runs, and returns once it serves: "". Else why it does
    not; the one that runs then goes on. The new one outlives this process."""
    ready, say = os.pipe()
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(say,),
            env={**os.environ, READY_FD: str(say)},
            start_new_session=True,
        )
    except OSError as err:
        os.close(say)
        return f"{command[0]}: {err.strerror}"
    os.close(say)
    with os.fdopen(ready, "rb") as end:
        if not select.select([end], [], [], REPLACE_SECONDS)[0]:
            child.kill()
            return f"it did not serve within {REPLACE_SECONDS:g} s"
        return "" if end.read(1) else f"it ended with status {child.wait()}"


def start_successor() -> None:
    """The same command once more, which takes over from this process (SIGUSR2).

    Where the command is a program's path, that path is run, not this interpreter: after an upgrade it leads to another
    version. A process between the two ends at once, so that the successor is nobody's child: systemd, which then has it,
    hears of its end.
    """
    program = sys.orig_argv[1:]
    command = program if program and os.path.isabs(program[0]) and os.access(program[0], os.X_OK) else None
    command = command or [sys.executable, *program]
    try:
        between = subprocess.Popen([sys.executable, "-I", "-S", "-c", BETWEEN, *command], stdin=subprocess.DEVNULL)
    except OSError as err:
        log.error("no successor started error=%s", err)
        return
    _between.append(between)  # not waited for: this process may be busy, and ends soon
    log.info("successor starts command=%s", command[0])
