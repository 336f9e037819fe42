"""An engine's output as people read it: a progress bar's thousand states are one line, colours and cursor moves are gone.

The output is kept as it came, offsets count its bytes; this is done by whoever shows it (console, CLI). Pure.
"""

from __future__ import annotations

import re

# CSI (colours, cursor), OSC (titles, links) up to its end, other two-character escapes.
ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[PX^_][^\x1b\n]*\x1b\\|[ -/]+[0-~]|[0-OQ-WYZ\\`a-~])"
)
BEGUN = re.compile(r"\x1b(?:[^\n]{0,200})?\Z")  # an escape that the text ends in
LONG = 65_536  # of a bar that goes on and on only the last state is kept
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")


def readable(text: str) -> str:
    """A whole text: every line as a terminal would show it at last, nothing in it that steers a terminal."""
    folder = Folder()
    return folder.feed(text) + folder.flush()


class Folder:
    """The same for a text that comes in pieces: `feed` gives what is finished, `flush` the unfinished line as it is now."""

    def __init__(self) -> None:
        self._line = ""  # as it came
        self._cut = False  # a part of it has been given

    def feed(self, text: str) -> str:
        *lines, self._line = (self._line + text).split("\n")
        if len(self._line) > LONG and "\r" in self._line:
            self._line = self._line[self._line.rindex("\r") :]
        return "".join(self._give(line) + "\n" for line in lines)

    def flush(self) -> str:
        """Where nothing more comes for a while: what follows goes on behind it, another state of it on a line of its own."""
        line = ESCAPE.sub("", self._line)
        held = begun.group() if (begun := BEGUN.search(line)) else ""
        given = self._give(line.removesuffix(held)) if line != held else ""
        self._line, self._cut = held, self._cut or bool(given)
        return given

    def _give(self, line: str) -> str:
        """A line, or what is there of one."""
        states = ESCAPE.sub("", line).rstrip("\r").split("\r")
        said = next((state for state in reversed(states) if state.strip()), "")
        anew = self._cut and len(states) > 1 and bool(said)
        self._cut = False
        return ("\n" if anew else "") + CONTROL.sub("", said)
