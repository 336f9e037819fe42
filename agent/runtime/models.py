"""What an engine of this node can load: GGUF files and Hugging Face folders below the channels' model folders.

- The name is the file's without `.gguf`; a split set (`-00001-of-00003`) is one model, given to the engine by its
  first part, with the size of all parts; a missing part makes it incomplete. Projectors (`mmproj*`) are no models, but
  belong to one: to those in their folder whose name theirs holds, or to all there when they are one model in several
  quantisations. Where it is not clear there is none.
- A folder with config.json and *.safetensors is one model, named by the folder (`models--org--name` caches: org/name,
  the revision that refs/main names first).
- Of two with the same name the first folder's wins, within a folder the first by path.
- An empty file, or one that does not begin as a GGUF file does, is listed as incomplete and says why. One that was cut
  short cannot be told from here: the engine says so when it is loaded. A text that begins with "simulated" counts as a
  model for the simulated engine.

A scan looks at names and sizes only (a few microseconds a file); a file is opened when it is new or has changed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent.runtime.disks import rotates
from agent.settings import ChannelConfig

log = logging.getLogger(__name__)
SPLIT = re.compile(r"(?P<name>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})", re.DOTALL)
CACHE = re.compile(r"models--(?P<org>[^/]+)--(?P<name>[^/]+)/snapshots/[^/]+$")
QUANTISATION = re.compile(r"[-_.](UD-)?(I?Q\d\w*|[BF]{1,2}\d\d|MXFP\d\w*)$", re.IGNORECASE)
HEADS = (b"GGUF", b"simulated")
DEPTH = 10  # folders below a model folder: a link to / must not send us over the whole disk


@dataclass(frozen=True, slots=True)
class FoundModel:
    name: str
    path: str  # what the engine is given
    size_bytes: int  # all weight files
    format: str  # "gguf" or "safetensors"
    incomplete: bool = False
    detail: str = ""  # why incomplete
    channels: tuple[str, ...] = ()
    projector: str = ""  # the mmproj file that belongs to it
    rotating_disk: bool = False  # one of its files lies on a disk that rotates
    files: tuple[str, ...] = field(default=(), compare=False)  # all weight files, in order
    stamp: int = field(default=0, compare=False)  # when one of them last changed, ns


@dataclass(slots=True)
class _File:
    path: str
    size: int
    ctime_ns: int
    device: int = 0


@dataclass(slots=True)
class _Folder:
    """One folder's content, links followed."""

    path: str
    files: dict[str, _File] = field(default_factory=dict)


class ModelIndex:
    """Models by channel. `scan` from a thread, readers from anywhere: results are swapped in whole."""

    def __init__(self, channels: Iterable[ChannelConfig]) -> None:
        self._folders = {c.name: tuple(str(f) for f in c.model_folders) for c in channels}
        self._by_channel: Mapping[str, Mapping[str, FoundModel]] = {}
        self._models: tuple[FoundModel, ...] = ()
        self._cache: dict[tuple[str, int, int], str] = {}
        self._lock = threading.Lock()
        self._changed = False
        self.unreadable: tuple[str, ...] = ()  # folders, with the reason

    def scan(self) -> bool:
        """Looks at the disk; True where anything is different from when this was last asked."""
        self.refresh()
        changed, self._changed = self._changed, False
        return changed

    def refresh(self) -> None:
        """Looks at the disk, for somebody who wants to know now; the next `scan` still tells of the change."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        self._seen: dict[tuple[str, int, int], str] = {}
        problems: dict[str, str] = {}
        found = {f: self._scan_folder(f, problems) for folders in self._folders.values() for f in folders}
        by_channel: dict[str, dict[str, FoundModel]] = {}
        for channel, folders in self._folders.items():
            here: dict[str, FoundModel] = {}
            for folder in folders:
                for model in found[folder]:
                    here.setdefault(model.name, model)
            by_channel[channel] = here
        models: dict[str, FoundModel] = {}
        for channel, here in by_channel.items():
            for name, model in here.items():
                known = models.setdefault(name, model)
                models[name] = replace(known, channels=(*known.channels, channel))
        now = tuple(models[name] for name in sorted(models))
        self.unreadable = tuple(f"{path}: {why}" for path, why in sorted(problems.items()))
        self._changed |= now != self._models or by_channel != self._by_channel
        self._models, self._by_channel, self._cache = now, by_channel, self._seen

    def models(self) -> tuple[FoundModel, ...]:
        """One entry a name with the channels that have it; path and size are those of the first such channel."""
        return self._models

    def find(self, name: str, channel: str) -> FoundModel | None:
        """What that channel loads under this name, by the last scan."""
        return self._by_channel.get(channel, {}).get(name)

    def _scan_folder(self, root: str, problems: dict[str, str]) -> list[FoundModel]:
        found: list[FoundModel] = []
        for folder in _walk(root, problems):
            found += _paired(list(self._gguf(folder)), folder)
            if "config.json" in folder.files and (one := self._safetensors(folder)):
                found.append(one)
        return found

    def _gguf(self, folder: _Folder) -> Iterator[FoundModel]:
        sets: dict[tuple[str, int], dict[int, _File]] = {}
        for name in sorted(folder.files):
            stem, dot, suffix = name.rpartition(".")
            if not dot or not stem or suffix.lower() != "gguf" or name.lower().startswith("mmproj"):
                continue
            if split := SPLIT.fullmatch(stem):
                parts = sets.setdefault((split["name"], int(split["parts"])), {})
                parts[int(split["part"])] = folder.files[name]
            else:
                file = folder.files[name]
                detail = self._head(file)
                yield FoundModel(stem, file.path, file.size, "gguf", bool(detail), detail, **_lasting([file]))
        for (name, count), parts in sets.items():
            missing = [n for n in range(1, count + 1) if n not in parts]
            detail = f"part {', '.join(map(str, missing))} of {count} is missing" if missing else ""
            detail = detail or next((d for n in sorted(parts) if (d := self._head(parts[n]))), "")
            first = parts[min(parts)]
            files = [parts[n] for n in sorted(parts)]
            yield FoundModel(
                name, first.path, sum(f.size for f in files), "gguf", bool(detail), detail, **_lasting(files)
            )

    def _head(self, file: _File) -> str:
        """Why this is no GGUF file, "" = it begins like one."""
        if file.size == 0:
            return f"{os.path.basename(file.path)} is empty"
        return self._cached(file, _check_head)

    def _safetensors(self, folder: _Folder) -> FoundModel | None:
        weights = [folder.files[name] for name in sorted(folder.files) if name.endswith(".safetensors")]
        index = folder.files.get("model.safetensors.index.json")
        if not weights:
            return None
        needed = self._cached(index, _index_files).split("\n") if index else _numbered(folder.files)
        missing = [n for n in needed if n and n not in folder.files]
        detail = f"{missing[0]} is missing" if missing else ""
        if len(missing) > 1:
            detail = f"{missing[0]} and {len(missing) - 1} more are missing"
        cache = CACHE.search(folder.path)
        name = f"{cache['org']}/{cache['name']}" if cache else os.path.basename(folder.path)
        size = sum(f.size for f in weights)
        return FoundModel(name, folder.path, size, "safetensors", bool(detail), detail, **_lasting(weights))

    def _cached(self, file: _File, look: Callable[[str], str]) -> str:
        key = (file.path, file.size, file.ctime_ns)
        if (known := self._seen.get(key, self._cache.get(key))) is None:
            known = look(file.path)
        self._seen[key] = known
        return known


def _walk(root: str, problems: dict[str, str]) -> Iterator[_Folder]:
    """Folders from the top down, each once however many links lead to it; hidden ones are left out."""
    visited: set[tuple[int, int]] = set()
    todo = [(os.path.abspath(root), 0)]
    while todo:
        path, depth = todo.pop()
        try:
            st = os.stat(path)
            if (st.st_dev, st.st_ino) in visited:
                continue
            visited.add((st.st_dev, st.st_ino))
            folder, below = _read(path, problems)
        except OSError as err:
            problems[path] = err.strerror or str(err)
            continue
        yield folder
        if depth < DEPTH:
            below.sort(key=lambda p: (not _is_main(p), p), reverse=True)
            todo += [(p, depth + 1) for p in below]


def _read(path: str, problems: dict[str, str]) -> tuple[_Folder, list[str]]:
    folder, below = _Folder(path), []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not _is_text(entry.name):
                problems[ascii(entry.path)] = "the name is not UTF-8"
                continue
            try:
                if entry.is_dir():
                    below.append(entry.path)
                elif entry.is_file():
                    st = entry.stat()
                    folder.files[entry.name] = _File(entry.path, st.st_size, st.st_ctime_ns, st.st_dev)
            except OSError:
                continue  # gone meanwhile, or a link in a circle
    return folder, below


def _is_main(path: str) -> bool:
    """Whether a folder is the snapshot that its cache's refs/main names: of several revisions that one counts."""
    if not CACHE.search(path):
        return False
    try:
        return Path(path).parents[1].joinpath("refs", "main").read_text().strip() == os.path.basename(path)
    except (OSError, UnicodeDecodeError):
        return False


def _paired(models: list[FoundModel], folder: _Folder) -> list[FoundModel]:
    """With the projectors of their folder; of several for one model the most exact that is usual (F16)."""
    projectors = sorted(
        (n for n in folder.files if n.lower().startswith("mmproj") and n.lower().endswith(".gguf")),
        key=lambda n: (not re.search(r"[-_.]f16\b", n.lower()), n),
    )
    if not projectors:
        return models
    bases = {_base(m.name).lower() for m in models}
    found = []
    for model in models:
        named = [
            n for n in projectors if (base := _base(n[6:-5]).strip("-_.").lower()) and _base(model.name).lower() == base
        ]
        own = named or (projectors if len(bases) == 1 else [])
        found.append(replace(model, projector=folder.files[own[0]].path) if own else model)
    return found


def _base(name: str) -> str:
    """A file's name without its quantisation."""
    return QUANTISATION.sub("", name)


def _numbered(names: Iterable[str]) -> list[str]:
    """Where no index says which files there are: those that `-00001-of-00004` in a name speaks of."""
    needed: list[str] = []
    for name in names:
        if name.endswith(".safetensors") and (split := SPLIT.fullmatch(name.removesuffix(".safetensors"))):
            count = int(split["parts"])
            needed += [f"{split['name']}-{n:05d}-of-{count:05d}.safetensors" for n in range(1, min(count, 1000) + 1)]
    return sorted(set(needed))


def _lasting(files: list[_File]) -> dict[str, Any]:
    return {
        "files": tuple(f.path for f in files),
        "stamp": max(f.ctime_ns for f in files),
        "rotating_disk": any(rotates(device) for device in {f.device for f in files}),
    }


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_head(path: str) -> str:
    try:
        with Path(path).open("rb") as f:
            head = f.read(16)
    except OSError as err:
        return f"{os.path.basename(path)} cannot be read: {err.strerror}"
    return "" if head.startswith(HEADS) else f"{os.path.basename(path)} is not a GGUF file (it does not begin like one)"


def _index_files(path: str) -> str:
    """The weight files that an index names, a line each."""
    try:
        names = json.loads(Path(path).read_bytes())["weight_map"].values()
        return "\n".join(sorted({str(n) for n in names}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        log.warning("index not usable path=%s error=%s", path, err)
        return ""
