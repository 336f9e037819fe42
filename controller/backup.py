"""Backup and restore of a controller: its SQLite database (a consistent copy, also while it runs), CA and secrets in one
tar file of mode 0600. Engine logs are not part of it; they go on where they lie.

A database elsewhere (PostgreSQL) has its own tools: the file then holds CA and secrets alone, and says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from controller import vault
from controller.fleet import planner_store
from controller.settings import Settings
from controller.store import migrate
from controller.store.session import Store

FORM = "slotserve-backup-1"
DATABASE, MANIFEST = "slotserve.db", "manifest.json"
_MEMBER = re.compile(r"slotserve\.db|session\.key|secrets\.key|ca/[a-z0-9][a-z0-9._-]*")
_EPOCHS_AHEAD = 1000  # more starts than there can have been since the backup; nodes refuse plans of an older epoch


class BackupError(RuntimeError):
    """Nothing was written or changed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a backup holds: its instant (ms), the database's revision (empty: no database in it), sha256 by name."""

    made_at: int
    revision: str
    files: dict[str, str]
    form: str = FORM


def backup(settings: Settings, target: Path, now: int) -> Contents:
    """Writes `target` whole (rename), 0600. A file that is no backup of ours is not replaced. Raises BackupError."""
    state = settings.state_dir
    if not (state / "ca" / "ca.key").exists():
        raise BackupError(f"{state} holds no certificate authority: no controller ran here; set SLOTSERVE_STATE_DIR")
    if target.exists() and not _is_ours(target):
        raise BackupError(f"{target} is there and is no backup; name another file")
    source = sqlite_file(settings)
    try:
        with tempfile.TemporaryDirectory(prefix=".slotserve-backup-", dir=target.absolute().parent) as folder:
            work, found = Path(folder), _secrets(state)
            if source is not None:
                found[DATABASE] = _copy_database(source, work / DATABASE)
            revision = _revision(work / DATABASE) if source is not None else ""
            contents = Contents(now, revision, {name: _sha256(path) for name, path in found.items()})
            _write_tar(work / "new", found, contents)
            os.replace(work / "new", target)
    except (OSError, sqlite3.Error) as err:
        raise BackupError(f"{target}: {err}") from err
    return contents


def restore(settings: Settings, source: Path, now: int) -> tuple[Contents, Path | None]:
    """Puts a backup in place of what is there; gives its contents and the folder that keeps what was there before.
    Refuses while a controller runs on the state folder. Afterwards plans carry a higher epoch than any before."""
    state = settings.state_dir
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(state), tempfile.TemporaryDirectory(prefix=".restore-", dir=state) as folder:
            work = Path(folder)
            contents = _unpack(source, work)
            database = sqlite_file(settings)
            if DATABASE in contents.files:
                if database is None:
                    raise BackupError(
                        f"{source} holds a SQLite database, but SLOTSERVE_DATABASE_URL names another kind"
                    )
                _usable(work / DATABASE, source)
            before = _epoch(settings)
            aside = _move_aside(state, contents, database if DATABASE in contents.files else None, now)
            for name in contents.files:
                place = database if name == DATABASE and database is not None else state / name
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                shutil.move(work / name, place)
            _raise_epoch(settings, before, now)
    except OSError as err:
        raise BackupError(f"{err.filename or source}: {err.strerror or err}") from err
    except (SQLAlchemyError, migrate.MigrationError, sqlite3.Error) as err:
        raise BackupError(str(err).splitlines()[0]) from err
    return contents, aside


def sqlite_file(settings: Settings) -> Path | None:
    """The database's file; None where it is not SQLite."""
    url = make_url(settings.database)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _secrets(state: Path) -> dict[str, Path]:
    names = ["session.key", vault.FILE, *(f"ca/{p.name}" for p in sorted((state / "ca").iterdir()))]
    return {name: state / name for name in names if _MEMBER.fullmatch(name) and (state / name).is_file()}


def _copy_database(source: Path, copy: Path) -> Path:
    """SQLite's own online backup: one consistent state, whoever writes meanwhile; and no write-ahead log beside it."""
    if not source.exists():
        raise BackupError(f"{source} is not there: slotserve migrate makes it")
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(sqlite3.connect(f"file:{_quoted(source)}?mode=ro", uri=True, timeout=30)) as old:
        with contextlib.closing(sqlite3.connect(copy)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")
    return copy


def _write_tar(path: Path, found: dict[str, Path], contents: Contents) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
            manifest = json.dumps(asdict(contents), indent=2).encode()
            head = tarfile.TarInfo(MANIFEST)
            head.size, head.mode, head.mtime = len(manifest), 0o600, contents.made_at // 1000
            tar.addfile(head, io.BytesIO(manifest))
            for name, source in found.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode, info.mtime = source.stat().st_size, 0o600, contents.made_at // 1000
                with source.open("rb") as body:
                    tar.addfile(info, body)
        file.flush()
        os.fsync(file.fileno())


def _read_manifest(tar: tarfile.TarFile, source: Path) -> Contents:
    first = tar.next()
    body = tar.extractfile(first) if first is not None and first.name == MANIFEST and first.size < 1_000_000 else None
    try:
        contents = Contents(**json.loads(body.read())) if body else None
    except (ValueError, TypeError):
        contents = None
    if contents is None or contents.form != FORM or not all(map(_MEMBER.fullmatch, contents.files)):
        raise BackupError(f"{source} is no backup that this version of SlotServe knows")
    return contents


def _is_ours(path: Path) -> bool:
    try:
        with tarfile.open(path, "r:gz") as tar:
            _read_manifest(tar, path)
            return True
    except (tarfile.TarError, BackupError, OSError, EOFError):
        return False


def _unpack(source: Path, work: Path) -> Contents:
    """All files of the backup into `work`, each compared with the manifest; nothing else comes out of the tar."""
    try:
        with tarfile.open(source, "r:gz") as tar:
            contents = _read_manifest(tar, source)
            for member in tar.getmembers()[1:]:
                if member.name not in contents.files or not member.isreg():
                    raise BackupError(f"{source}: {member.name!r} does not belong into a backup")
                place = work / member.name
                place.parent.mkdir(mode=0o700, exist_ok=True)
                body = tar.extractfile(member)
                with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                    shutil.copyfileobj(body, out)  # type: ignore[arg-type]
                    out.flush()
                    os.fsync(out.fileno())
    except (tarfile.TarError, EOFError, ValueError) as err:
        raise BackupError(f"{source} is damaged, or no backup of SlotServe: {err}") from err
    for name, sha256 in contents.files.items():
        if not (work / name).exists() or _sha256(work / name) != sha256:
            raise BackupError(f"{source} is damaged: {name} is not what was saved")
    return contents


def _usable(database: Path, source: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
    if verdict != "ok":
        raise BackupError(f"{source}: the database in it is damaged: {verdict}")
    if not migrate.known(_revision(database)):
        raise BackupError(f"{source} was made by a newer SlotServe; install that one first")


def _move_aside(state: Path, contents: Contents, database: Path | None, now: int) -> Path | None:
    """What a restore replaces is kept, in a folder of its own; a write-ahead log goes with its database. The key of what is
    sealed stays where the backup holds none."""
    old = [state / "ca", state / "session.key"]
    if vault.FILE in contents.files:
        old.append(state / vault.FILE)
    if database is not None:
        old += [database.with_name(database.name + tail) for tail in ("", "-wal", "-shm")]
    old = [path for path in old if path.exists()]
    if not old:
        return None
    aside = Path(tempfile.mkdtemp(prefix=f"before-restore-{now // 1000}-", dir=state))
    for path in old:
        shutil.move(path, aside / path.name)
    return aside


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """The lock that `slotserve serve` holds while it runs."""
    with (state / "serve.lock").open("a") as lock:
        os.chmod(state / "serve.lock", 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"a controller runs on {state}; stop it first (systemctl stop, or Ctrl-C)") from None
        yield


def _epoch(settings: Settings) -> int:
    """The epoch of the database in force; 0 where there is none that can be read."""
    file = sqlite_file(settings)
    if file is not None and not file.exists():
        return 0
    store = Store(settings.database)
    try:
        with store.read() as session:
            return int(session.execute(text("SELECT epoch FROM leader WHERE id = 1")).scalar_one_or_none() or 0)
    except (SQLAlchemyError, sqlite3.Error):
        return 0  # damaged or empty: that is why a backup is restored
    finally:
        store.close()


def _raise_epoch(settings: Settings, before: int, now: int) -> None:
    store = Store(settings.database)
    try:
        if store.sqlite:
            migrate.upgrade(store)
        after = planner_store.next_epoch(store, now)
        planner_store.next_epoch(store, now, at_least=max(before, after) + _EPOCHS_AHEAD)
    finally:
        store.close()


def _revision(database: Path) -> str:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.Error:
            row = None
    if row is None:
        raise BackupError(f"{database.name} is not migrated: run slotserve migrate")
    return str(row[0])


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path.absolute()))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
