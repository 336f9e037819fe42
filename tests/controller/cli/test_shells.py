"""Tab in real shells at a terminal: names with colons and spaces come out as one word."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug.serving import make_server

from tests.controller.api.conftest import make

BIN = Path(sys.executable).parent
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
READ = {
    "bash": 'eval "$(slotserve completion bash)"',
    "zsh": 'autoload -Uz compinit && compinit -u -D && eval "$(slotserve completion zsh)"',
}
SECONDS = 60.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(the API's address, a key)"""
    w = make(tmp_path_factory.mktemp("world"))
    for model, name in (("small", "fast"), ("small", "long-context"), ("org/big model", "fast lane")):
        w.good("POST", "/presets", {"model": model, "name": name, "engine": "llama.cpp", "args": []})
    server = make_server("127.0.0.1", 0, w.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", w.secrets["maya"]
    server.shutdown()
    thread.join(10)
    server.server_close()
    w.store.close()


def environment(folder: Path, address: tuple[str, str]) -> dict[str, str]:
    url, key = address
    return {
        "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "PS1": "$ ", "LANG": "C.UTF-8",
        "SLOTSERVE_URL": url, "SLOTSERVE_API_KEY": key, "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


class Terminal:
    """A shell with somebody at its keyboard."""

    def __init__(self, shell: str, folder: Path, address: tuple[str, str]) -> None:
        env = environment(folder, address)
        self._end, child = pty.openpty()
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *START[shell]], stdin=child, stdout=child, stderr=child, env=env, cwd=folder
        )
        os.close(child)
        self.seen = ""
        self.type(READ[shell] + "; echo its-re''ady\n")
        self.until(r"its-ready")

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def until(self, pattern: str, seconds: float = SECONDS, last: bool = True) -> re.Match[str] | None:
        """Waits for what the terminal shows; not `last`: None where it does not."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.seen):
                return found
            if select.select([self._end], [], [], 0.2)[0]:
                self.seen += os.read(self._end, 65536).decode(errors="replace")
        if not last:
            return None
        raise AssertionError(f"no {pattern!r} in {self.seen!r}")

    def completed(self, line: str, shows: str) -> list[str]:
        """The words of a line after Tab, which then `shows` something of; nothing is run."""
        self.seen = ""
        self.type(line)
        for turn in range(10):  # on a busy machine Tab may be too quick for an answer: then nothing is offered
            self.type("\t")
            if self.until(shows, SECONDS / 10, last=turn == 9):
                break
        self.seen = ""
        self.type("\x01printf '[%s]' \x05\n")  # to the beginning of the line: its words are printed instead
        words = self.until(r"(?m)^\r?(\[slotserve\].*\])")
        return re.findall(r"\[(.*?)\]", words[1] if words else "")

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        os.close(self._end)


@pytest.mark.parametrize("shell", START)
def test_names_with_colons_and_spaces(shell: str, tmp_path: Path, address: tuple[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    terminal = Terminal(shell, tmp_path, address)
    try:
        assert terminal.completed("slotserve channels", "channels") == ["slotserve", "channels"]
        assert terminal.completed("slotserve book small:lo", "small:long-context") == [
            "slotserve",
            "book",
            "small:long-context",
        ]
        assert terminal.completed("slotserve book --channel n1/", "n1/")[:2] == ["slotserve", "book"]
        assert terminal.completed("slotserve book org/big\\ model:fa", "lane") == [
            "slotserve",
            "book",
            "org/big model:fast lane",
        ]
        assert terminal.completed("slotserve slots org/b", r"model")[2].startswith("org/big model")
    finally:
        terminal.close()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not on this machine")
def test_fish_takes_no_colon_for_the_end_of_a_word(tmp_path: Path, address: tuple[str, str]) -> None:
    asks = 'slotserve completion fish | source; complete -C "slotserve book small:lo"'
    for _ in range(5):  # on a busy machine Tab may be too quick for an answer
        done = subprocess.run(
            ["fish", "--no-config", "-c", asks], env=environment(tmp_path, address), capture_output=True, text=True, timeout=120,
            check=True,
        )  # fmt: skip
        if done.stdout:
            break
    assert done.stdout.split("\t")[0] == "small:long-context"
