"""A small process beside each engine, so that the engine outlives the agent: `python -I -S -E shim.py SPEC.json`.

Standard library only, nothing of ours is imported (the agent's files may be replaced while this runs), and so it is one
file. It starts the engine in a session of its own, copies the engine's output into log segments, writes the run record,
stops the whole tree on SIGTERM and leaves an exit record. It is the tree's sub-reaper: whatever loses its parent becomes
its child. If it is killed itself the kernel kills the engine; what the engine had left behind is found by the marker
later.

SPEC (0600, removed once read): launch_id, command, env, cwd, markers (name: value, set for the engine), stop_timeout,
log {folder, segment_bytes, segments}, paths {run, exit, stop}, record (copied into the run record).
One line of JSON goes to stdout: {"engine_pid"} or {"error"}.
"""

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
F_SETPIPE_SZ = 1031
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class Log:
    """The output in segments `<launch>.<offset>.log`, named by the offset of their first byte; the oldest go.

    A full disk never blocks the engine: what cannot be written is dropped, counted and told once there is room.
    """

    def __init__(self, folder, launch_id, segment_bytes, segments):
        self.folder, self.launch_id = folder, launch_id
        self.segment_bytes, self.segments = segment_bytes, segments
        self.offset = self.dropped = self.untold = 0
        self.fd, self.room, self.paths = -1, 0, []

    def write(self, data):
        try:
            if self.untold and data:
                note = b"\n[slotserve: %d bytes of output lost, the log could not be written]\n" % self.untold
                self._put(note)
                self.untold = 0
            while data:
                data = data[self._put(data) :]
        except OSError:
            self.dropped += len(data)
            self.untold += len(data)

    def _put(self, data):
        if self.fd < 0 or self.room <= 0:
            self._next()
        n = os.write(self.fd, data[: self.room])
        self.offset += n
        self.room -= n
        return n

    def _next(self):
        while len(self.paths) >= self.segments:  # first, for the disk may be full
            _unlink(self.paths.pop(0))
        path = os.path.join(self.folder, f"{self.launch_id}.{self.offset:015d}.log")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.room = fd, self.segment_bytes
        self.paths.append(path)


class Shim:
    def __init__(self, spec):
        self.spec = spec
        self.pid = os.getpid()
        self.log = Log(spec["log"]["folder"], spec["launch_id"], spec["log"]["segment_bytes"], spec["log"]["segments"])
        self.markers = [f"{k}={v}".encode() for k, v in spec["markers"].items() if k == "SLOTSERVE_LAUNCH"]
        self.engine, self.code, self.deadline = 0, None, None
        self.killed = False
        self.reserve = spec["paths"]["exit"] + ".room"
        self.signalled = set()
        self.slow_after = 0.0

    def run(self):
        """Until engine and everything it started are gone."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")
        self.wake, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for sig in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(sig, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.out, out_w = os.pipe2(os.O_CLOEXEC)
        try:
            fcntl.fcntl(out_w, F_SETPIPE_SZ, 1 << 20)
        except OSError:
            pass  # the usual 64 KiB do as well
        os.set_blocking(self.out, False)
        self._reserve()
        error = self._start(libc, out_w)
        os.close(out_w)
        if error:
            self._exit_record(error)
            _tell({"error": error})
            return
        try:
            self._run_record()
        except OSError as err:
            # Nobody could find this engine again: better none than one that cannot be adopted.
            os.kill(self.engine, signal.SIGKILL)
            os.waitpid(self.engine, 0)
            _unlink(self.reserve)
            _tell({"error": f"run record: {err.strerror}: {err.filename}"})
            return
        _tell({"engine_pid": self.engine})
        self._loop()
        self._exit_record("")

    def _start(self, libc, out_w):
        err_r, err_w = os.pipe2(os.O_CLOEXEC)
        blocked = {*STOP_SIGNALS, signal.SIGCHLD}
        # A stop between fork and exec must reach the engine with its default action, not our inherited handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != self.pid:
                    os._exit(127)
                signal.set_wakeup_fd(-1)
                for sig in (*blocked, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(sig, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out_w, 1)
                os.dup2(out_w, 2)
                os.chdir(self.spec["cwd"])
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core of 100 GB would fill the disk
                signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
                command = self.spec["command"]
                os.execvpe(command[0], command, {**self.spec["env"], **self.spec["markers"]})
            except (OSError, ValueError) as err:
                os.write(err_w, (f"{getattr(err, 'strerror', None) or err}: {self.spec['command'][0]}").encode())
            finally:
                os._exit(127)
        self.engine = pid
        os.close(err_w)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        error = b""
        while chunk := os.read(err_r, 4096):
            error += chunk
        os.close(err_r)
        if error:
            os.waitpid(pid, 0)
            self.code = 127
        return error.decode("utf-8", "replace")

    def _run_record(self):
        with open("/proc/sys/kernel/random/boot_id") as f:
            boot_id = f.read().strip()
        stats = {pid: _stat(pid) for pid in (self.pid, self.engine)}
        ticks = {pid: s[2] if s else 0 for pid, s in stats.items()}
        _write(
            self.spec["paths"]["run"],
            {
                **self.spec["record"],
                "launch_id": self.spec["launch_id"],
                "boot_id": boot_id,
                "shim_pid": self.pid,
                "shim_ticks": ticks[self.pid],
                "engine_pid": self.engine,
                "engine_ticks": ticks[self.engine],
            },
        )

    def _reserve(self):
        """Room for the exit record, should the disk be full by then."""
        try:
            with open(os.open(self.reserve, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
                f.write(b" " * 4096)
        except OSError:
            pass  # full already

    def _exit_record(self, error):
        record = {
            "launch_id": self.spec["launch_id"],
            "exit_code": self.code,
            "stop_asked": self.deadline is not None,
            "killed": self.killed,
            "output_bytes": self.log.offset,
            "dropped_bytes": self.log.dropped,
            "ended_wall_ms": time.time_ns() // 1_000_000,
            "ended_boottime_ms": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000,
            "error": error,
        }
        for _ in range(2):  # the second time in the room that was reserved
            try:
                _write(self.spec["paths"]["exit"], record)
                break
            except OSError:
                _unlink(self.reserve)  # where that was not enough the agent says that there is no record
        _unlink(self.reserve)

    def _loop(self):
        poller = select.poll()
        poller.register(self.out, select.POLLIN)
        poller.register(self.wake, select.POLLIN)
        while True:
            ending = self.deadline is not None or self.code is not None
            for fd, _ in poller.poll(self._wait_ms() if ending else None):
                if fd == self.wake:
                    if STOP_SIGNALS & set(os.read(self.wake, 512)):
                        self._ask_stop()
                elif not self._copy():
                    poller.unregister(self.out)
            self._reap()
            if (self.deadline is not None or self.code is not None) and self._sweep():
                break
        if self.code is None:  # dead, but not taken note of yet
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.engine, 0)[1])
        while self._copy():
            pass

    def _wait_ms(self):
        """Soon after something changed, seldom later; never past the deadline."""
        now = time.monotonic()
        wait = 0.05 if now < self.slow_after else 0.25
        if self.deadline is not None and self.deadline > now:
            wait = min(wait, self.deadline - now)
        return int(wait * 1000) + 1

    def _copy(self):
        """One piece of output into the log; False at its end (or, after the engine, when nothing is left)."""
        try:
            data = os.read(self.out, 1 << 16)
        except BlockingIOError:
            return False
        self.log.write(data)
        return bool(data)

    def _reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.engine and self.code is None:
                self.code = os.waitstatus_to_exitcode(status)
                self.slow_after = time.monotonic() + 1

    def _ask_stop(self):
        """The time-out comes with the request, for settings change while an engine runs."""
        timeout = self.spec["stop_timeout"]
        try:
            with open(self.spec["paths"]["stop"]) as f:
                asked = json.load(f)
            if asked["launch_id"] == self.spec["launch_id"]:
                timeout = float(asked["timeout"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # stopped by hand: the time-out of the start
        deadline = time.monotonic() + timeout
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)
        self.slow_after = time.monotonic() + 1

    def _sweep(self):
        """Signals what still runs; True when nothing does. Each process gets SIGTERM once: a second one means
        "at once" to some engines. An engine that ended by itself leaves nothing worth waiting for."""
        kill = self.deadline is None or time.monotonic() >= self.deadline
        # Nothing found is looked at twice: a parent that ends during a look hides its children from it.
        members = self._members(kill) or self._members(True)
        for pid, ticks in members:
            if kill or (pid, ticks) not in self.signalled:
                self.signalled.add((pid, ticks))
                if kill and pid == self.engine:
                    self.killed = True
                try:
                    os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
                except OSError:
                    pass  # gone between the look and the signal
        if members:
            self._reap()
        return not members

    def _members(self, thorough):
        """(pid, start ticks) of all that runs under this process, and of what carries the marker where the tree is
        empty or `thorough`."""
        stats = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (s := _stat(int(name))):
                stats[int(name)] = s
        children: dict = {}
        for pid, (_, ppid, _) in stats.items():
            children.setdefault(ppid, []).append(pid)
        found, todo = set(), list(children.get(self.pid, ()))
        while todo:
            pid = todo.pop()
            found.add(pid)
            todo += children.get(pid, ())
        alive = {pid for pid in found if stats[pid][0] not in "ZX"}
        if thorough or not alive or not self.signalled:
            alive |= {p for p, s in stats.items() if s[0] not in "ZX" and p not in found and self._marked(p)}
        return [(pid, stats[pid][2]) for pid in alive]

    def _marked(self, pid):
        try:
            if pid == self.pid or os.stat(f"/proc/{pid}").st_uid != os.geteuid():
                return False
            with open(f"/proc/{pid}/environ", "rb") as f:
                return any(m in self.markers for m in f.read().split(b"\0"))
        except OSError:
            return False


def _stat(pid):
    """(state, ppid, start ticks), or None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
        return chr(fields[0][0]), int(fields[1]), int(fields[19])
    except (OSError, IndexError):
        return None


def _write(path, value):
    tmp = f"{path}.{os.getpid()}.tmp"
    try:
        with open(os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            json.dump(value, f)
        os.rename(tmp, path)
    except OSError:
        _unlink(tmp)
        raise


def _unlink(path):
    try:
        os.unlink(path)
    except OSError:
        pass  # not there, or nothing that can be done about it


def _tell(message):
    """One line to the agent, which may be gone; then stdout is nobody's."""
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError:
        pass
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)


def main(argv):
    os.umask(0o077)
    with open(argv[1]) as f:
        spec = json.load(f)
    os.unlink(argv[1])
    Shim(spec).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
