"""Backup and restore: a consistent copy while others write, secrets with it, nothing half done, a higher epoch after."""

from __future__ import annotations

import fcntl
import sqlite3
import stat
import tarfile
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from controller.backup import BackupError, backup, restore
from controller.fleet import planner_store
from controller.fleet.ca import CertificateAuthority
from controller.settings import Settings
from controller.store import migrate, users
from controller.store.session import Store
from controller.web import session_key

NOW = 1_796_000_000_000


@pytest.fixture
def there(tmp_path: Path) -> tuple[Settings, Store]:
    """A controller's folder with one person, a CA and a session key."""
    settings = Settings(state_dir=tmp_path / "state")
    CertificateAuthority(settings.state_dir / "ca")
    session_key(settings.state_dir)
    store = Store(settings.database)
    migrate.upgrade(store)
    add(store, "lin")
    return settings, store


def add(store: Store, name: str) -> None:
    with store.write() as session:
        users.create(session, name, None, "user", NOW)


def people(settings: Settings) -> set[str]:
    with Store(settings.database).read() as session:
        return {name for (name,) in session.execute(text("SELECT name FROM users"))}


def epoch(settings: Settings) -> int:
    with Store(settings.database).read() as session:
        return int(session.execute(text("SELECT epoch FROM leader")).scalar_one())


def test_what_is_saved_comes_back_and_what_was_there_is_kept(there, tmp_path: Path) -> None:
    settings, store = there
    file = tmp_path / "saved"
    backup(settings, file, NOW)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secrets = {n: (settings.state_dir / n).read_bytes() for n in ("session.key", "ca/ca.key", "ca/ca.crt")}
    for _ in range(5):
        planner_store.next_epoch(store, NOW)
    add(store, "later")
    before = epoch(settings)
    store.close()
    for name in secrets:
        (settings.state_dir / name).write_bytes(b"lost")
    _, aside = restore(settings, file, NOW + 1)
    assert people(settings) == {"lin"}
    assert {n: (settings.state_dir / n).read_bytes() for n in secrets} == secrets
    assert epoch(settings) > before  # nodes refuse plans of an older epoch
    assert migrate.check(Store(settings.database)) == []
    assert aside is not None
    with Store(f"sqlite:///{aside / 'slotserve.db'}").read() as session:
        assert session.execute(text("SELECT count(*) FROM users")).scalar_one() == 2
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in settings.state_dir.rglob("*.key")}
    assert set(modes.values()) == {0o600}


def test_a_backup_goes_to_an_empty_machine(there, tmp_path: Path) -> None:
    settings, _ = there
    backup(settings, tmp_path / "saved", NOW)
    other = Settings(state_dir=tmp_path / "new" / "machine")
    _, aside = restore(other, tmp_path / "saved", NOW)
    assert aside is None
    assert people(other) == {"lin"}
    assert stat.S_IMODE(other.state_dir.stat().st_mode) == 0o700


def test_the_copy_is_of_one_moment_while_others_write(there, tmp_path: Path) -> None:
    settings, store = there
    end = threading.Event()

    def write() -> None:
        n = 0
        while not end.is_set():
            add(store, f"p{n}")
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(5):
            backup(settings, tmp_path / f"saved{n}", NOW)
            with tarfile.open(tmp_path / f"saved{n}") as tar:
                tar.extract("slotserve.db", tmp_path / f"out{n}", filter="data")
            with sqlite3.connect(tmp_path / f"out{n}" / "slotserve.db") as copy:
                (revision,) = copy.execute("SELECT number FROM revision").fetchone()
                (count,) = copy.execute("SELECT count(*) FROM users").fetchone()
            assert revision == count  # both grow in every write's transaction
    finally:
        end.set()
        writer.join()


def test_a_running_controller_is_left_alone(there, tmp_path: Path) -> None:
    settings, _ = there
    backup(settings, tmp_path / "saved", NOW)
    with (settings.state_dir / "serve.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BackupError, match="a controller runs on"):
            restore(settings, tmp_path / "saved", NOW)
    assert people(settings) == {"lin"}


@pytest.mark.parametrize("kind", ["text", "cut", "changed", "stranger", "climbs", "missing"])
def test_what_is_no_whole_backup_changes_nothing(there, tmp_path: Path, kind: str) -> None:
    settings, _ = there
    file, parts = tmp_path / "saved", tmp_path / "parts"
    backup(settings, file, NOW)
    with tarfile.open(file) as tar:
        tar.extractall(parts, filter="data")
        names = tar.getnames()
    if kind == "text":
        file.write_text("root:x:0:0")
    elif kind == "cut":
        file.write_bytes(file.read_bytes()[:-2000])
    elif kind == "missing":
        file.unlink()
    else:
        (parts / "other").write_text("x")
        if kind == "changed":
            (parts / "session.key").write_bytes(b"x" * 32)
        with tarfile.open(file, "w:gz") as tar:
            for name in names:
                tar.add(parts / name, name)
            if kind != "changed":
                tar.add(parts / "other", "evil" if kind == "stranger" else "../../evil")
    add(Store(settings.database), "later")
    with pytest.raises(BackupError):
        restore(settings, file, NOW)
    assert people(settings) == {"lin", "later"}
    assert not list(tmp_path.rglob("evil"))
    assert not [p for p in settings.state_dir.iterdir() if "restore" in p.name]


def test_a_file_that_is_no_backup_is_not_replaced(there, tmp_path: Path) -> None:
    settings, _ = there
    (tmp_path / "thesis").write_text("years")
    with pytest.raises(BackupError, match="is no backup"):
        backup(settings, tmp_path / "thesis", NOW)
    assert (tmp_path / "thesis").read_text() == "years"
    backup(settings, tmp_path / "saved", NOW)
    backup(settings, tmp_path / "saved", NOW + 1)  # last night's is


def test_where_no_controller_ran_there_is_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="SLOTSERVE_STATE_DIR"):
        backup(Settings(state_dir=tmp_path), tmp_path / "saved", NOW)
