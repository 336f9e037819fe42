"""A PostgreSQL server of the suite's own: a Unix socket in a private folder, nothing synced to disk, one a run.

The first test worker that wants it starts it, the others find it in the run's shared folder; the run's own process
ends it by its id (tests/conftest.py), a keeper where that process was killed. A test gets a database that nobody else
uses meanwhile: a copy of a migrated one (some 300 files: a third of a second), or the worker's own, emptied (a
hundredth).
"""

from __future__ import annotations

import itertools
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from controller.store import migrate
from controller.store.session import Store
from controller.store.tables import Base
from tests.parts import locked, pid_alive, wait_until

PACKAGE = "postgresql"  # Debian's, with contrib (btree_gist) in it
STATE = "postgresql.json"
# A crash loses what it wrote, and nobody minds. Autovacuum stays: what it does in operation, it does here.
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "120",
    "jit": "off",
    "log_min_messages": "warning",
}
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
FIRST_ROWS = (
    "INSERT INTO leader (id, epoch, holder, renewed_at) VALUES (1, 0, '', 0); "
    "INSERT INTO revision (id, number) VALUES (1, 0)"
)
# Beside the server: ends it and removes its folder when the run's process is gone without a word (killed, timed out).
KEEPER = """
import os, select, shutil, signal, sys
run, server = (os.pidfd_open(int(pid)) for pid in sys.argv[1:3])
poll = select.poll()
for each in (run, server):
    poll.register(each, select.POLLIN)
if server not in dict(poll.poll()):
    signal.pidfd_send_signal(server, signal.SIGQUIT)
    select.select([server], [], [], 30)
    shutil.rmtree(sys.argv[3], ignore_errors=True)
"""
_names = itertools.count(1)


def find_postgresql() -> Path | None:
    """The folder of initdb and postgres: what TEST_POSTGRESQL names, on the PATH, or where Debian puts them (the newest
    version)."""
    if named := os.environ.get("TEST_POSTGRESQL"):
        return Path(named)
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    return versions[-1].parent if versions else None


class PostgreSQL:
    """A running server; `url(name)` is a database's address."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder, self.pid = folder, pid
        self._own: set[str] = set()

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def run(self, *statements: str, database: str = "postgres") -> None:
        """Statements outside a transaction, as the superuser."""
        with psycopg.connect(host=str(self.folder), user="postgres", dbname=database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    @contextmanager
    def database(self, template: str = "migrated") -> Iterator[str]:
        """A new database's URL; dropped at the end, whoever is connected."""
        name = f"t{os.getpid()}_{next(_names)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            self.run(f"DROP DATABASE {name} WITH (FORCE)")

    def emptied(self) -> str:
        """The URL of this process' own migrated database, without rows but those that a migration leaves."""
        name = f"w{os.getpid()}"
        if name not in self._own:
            self.run(f"CREATE DATABASE {name} TEMPLATE migrated")
            self._own.add(name)
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        tables = "; ".join(f"DELETE FROM {t.name}" for t in reversed(Base.metadata.sorted_tables))
        self.run(f"{others} AND pid <> pg_backend_pid()", f"{tables}; {FIRST_ROWS}", database=name)
        return self.url(name)


def start(binaries: Path, shared: Path, options: Mapping[str, str] | None = None) -> PostgreSQL:
    """The run's server: started by whoever comes first, with `options` over ours."""
    state = shared / STATE
    with locked(shared / "postgresql.lock"):
        if not state.exists():
            try:
                _migrated(_start(binaries, state, {**OPTIONS, **(options or {})}))
            except BaseException:
                stop(shared)
                raise
        said = json.loads(state.read_text())
        return PostgreSQL(Path(said["folder"]), said["pid"])


def crash(shared: Path) -> None:
    """The run's server is gone from one instant to the next; its folder stays."""
    pid = json.loads((shared / STATE).read_text())["pid"]
    os.kill(pid, signal.SIGQUIT)
    wait_until(lambda: not pid_alive(pid), 30, "PostgreSQL has ended")


def start_again(binaries: Path, shared: Path, options: Mapping[str, str] | None = None) -> PostgreSQL:
    """After a crash, on the same folder."""
    folder = Path(json.loads((shared / STATE).read_text())["folder"])
    return _serve(binaries, folder, shared / STATE, {**OPTIONS, **(options or {})})


def stop(shared: Path) -> None:
    """Ends the run's server, if there is one, and removes its folder."""
    state = shared / STATE
    if not state.exists():
        return
    said = json.loads(state.read_text())
    pid = said["pid"]
    for number in (signal.SIGINT, signal.SIGQUIT):  # fast, then at once
        if pid_alive(pid):
            os.kill(pid, number)
            end = time.monotonic() + 10
            while pid_alive(pid) and time.monotonic() < end:
                time.sleep(0.02)
    shutil.rmtree(said["folder"], ignore_errors=True)
    state.unlink()


def _start(binaries: Path, state: Path, settings: Mapping[str, str]) -> PostgreSQL:
    folder = Path(tempfile.mkdtemp(prefix="ss-pg-"))  # short: a socket's path has at most 107 bytes
    who = _other_user(folder)
    data = folder / "data"
    version = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    # A collation that sorts as people do, where it can be had: what relies on another one shows itself.
    human = ["--locale-provider=icu", "--icu-locale=en"] if float(version.split()[2].split(".")[0]) >= 15 else []
    initdb = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", *human]
    made = subprocess.run(initdb, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, **who)
    if human and "ICU is not supported" in made.stderr:
        made = subprocess.run(initdb[: -len(human)], env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, **who)
    assert made.returncode == 0, made.stderr
    return _serve(binaries, folder, state, settings)


def _serve(binaries: Path, folder: Path, state: Path, settings: Mapping[str, str]) -> PostgreSQL:
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with open(folder / "log", "wb") as out:
        process = subprocess.Popen(
            [binaries / "postgres", "-D", folder / "data", "-k", folder, *options],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=ENVIRONMENT, cwd=folder, start_new_session=True,
            **_other_user(folder),
        )  # fmt: skip
    state.write_text(json.dumps({"folder": str(folder), "pid": process.pid}))
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    keeper = [sys.executable, "-c", KEEPER, str(run), str(process.pid), str(folder)]
    subprocess.Popen(keeper, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True)
    server = PostgreSQL(folder, process.pid)

    def ready() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        try:
            server.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    wait_until(ready, 30, "PostgreSQL answers", every=0.05)
    return server


def _migrated(server: PostgreSQL) -> None:
    """The database that the tests' own ones are copies of."""
    server.run("CREATE DATABASE migrated")
    store = Store(server.url("migrated"))
    migrate.upgrade(store)
    store.close()


def _other_user(folder: Path) -> dict[str, object]:
    """The server refuses to run as root: then it is `postgres`, who owns the folder."""
    if os.getuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
