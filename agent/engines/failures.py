"""What an engine's last words mean: a category, a reason in plain words with what to do, and the engine's own line.

The machinery; the engines' words are in failures_llamacpp.py and failures_torch.py. Signs are looked for in order, the
most telling first; `detail` is the first line of the output that has the sign.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.engines.base import Ended, Verdict

Values = Mapping[str, str]
Words = Callable[[re.Match[str], Values], str]
DETAIL_CHARS = 500
LOAD_TIMEOUT = "not ready within its load time-out: give the preset a longer load_timeout_seconds, or move the model to a faster disk"
KILLED = (
    "most likely main memory ran out and the kernel ended it; see the node's kernel log, and lower the context or use a"
    " smaller model"
)
SEE = "see its output"
AGAIN = "where that happens again, try another version of it"
NO_PROGRAM = "the engine's program, or something that it needs, is not on this node: install it"


@dataclass(frozen=True, slots=True)
class Sign:
    """A line that tells: what it means, and the words for people (a text, or made from the match and the preset)."""

    category: str
    pattern: re.Pattern[str]
    words: str | Words

    def reason(self, match: re.Match[str], values: Values) -> str:
        return self.words if isinstance(self.words, str) else self.words(match, values)


def sign(category: str, pattern: str, words: str | Words) -> Sign:
    return Sign(category, re.compile(pattern, re.IGNORECASE), words)


def classify(
    lines: Sequence[str],
    ended: Ended,
    values: Values,
    signs: Sequence[Sign],
    *,
    kills_itself: bool = False,
    cause: str = "",
) -> Verdict:
    """The verdict on an engine. `kills_itself`: it ends with SIGKILL when a part of it fails, so -9 says nothing.
    `cause`: the line that tells most where no sign is found, for engines that say much after it."""
    if _killed(ended) and not kills_itself:
        return _by_code(lines, ended)
    for candidate in signs:
        for line in lines:
            match = candidate.pattern.search(line)
            if match:
                return Verdict(candidate.category, candidate.reason(match, values), tidy(line))
    if ended.timed_out:
        return Verdict("load_timeout", LOAD_TIMEOUT, tidy(_last(lines)))
    if kills_itself and cause and _killed(ended):
        return Verdict(
            "crashed", f"a part of the engine failed {_when(ended)}, and it ended itself; {SEE}", tidy(cause)
        )
    return _by_code([cause] if cause else lines, ended)


def lines_of(output: str) -> list[str]:
    """The output's lines, without colours; a progress bar's steps count as lines."""
    return re.split(r"[\r\n]+", _COLOUR.sub("", output))


def tidy(line: str) -> str:
    """A line without the time, level and process in front, of bounded length."""
    text = _PREFIX.sub("", line).strip()
    return text if len(text) <= DETAIL_CHARS else text[: DETAIL_CHARS - 1] + "…"


def now(values: Values, option: str, unset: str) -> str:
    """The preset's present value of an option, for advice."""
    return f"now {values[option]}" if values.get(option) else unset


_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"^\s*\d+\.\d\d\.\d{3}\.\d{3} [A-Z] "  # llama.cpp
    r"|^(\(\w+ pid=\d+\) )?((DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]*\] ?)?"  # vLLM
    r"(\[\d{4}-\d\d-\d\d [\d:]+[^\]]*\] )?"  # SGLang
)


def _by_code(lines: Sequence[str], ended: Ended) -> Verdict:
    """Nothing telling was said: the exit status speaks."""
    detail = tidy(next((line for line in lines if _SOUNDS_BAD.search(line)), "") or _last(lines))
    code = ended.code
    when = _when(ended)
    if code is None:
        return Verdict("crashed", f"the engine failed {when}; {SEE}", detail)
    if _killed(ended):
        return Verdict("killed_by_kernel", f"killed {when} (SIGKILL): {KILLED}", detail)
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if number:
        advice = "" if number in _TOLD else f"; {AGAIN}"
        return Verdict("crashed", f"the engine crashed {when}: {by_signal(number)}{advice}", detail)
    if code == 127:
        return Verdict("missing_library", NO_PROGRAM, detail)
    return Verdict("crashed", f"the engine ended by itself {when} with exit status {code}; {SEE}", detail)


def by_signal(number: int) -> str:
    """What a signal says about a program that it ended."""
    return f"{_SIGNALS.get(number, 'ended by a signal')} ({_name(number)})"


def _when(ended: Ended) -> str:
    return "while it served" if ended.was_ready else "before it was ready"


def _killed(ended: Ended) -> bool:
    return ended.code in (-9, 137) and not ended.timed_out


def _last(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_SOUNDS_BAD = re.compile(r"error|fail|exception|abort|assert|fault|cannot|could ?n[o']t|fatal", re.IGNORECASE)
_SIGNALS = {
    4: "this build uses processor instructions that this machine lacks; use another build",
    6: "it stopped itself after a fault",
    7: "a file it had mapped became unreadable",
    8: "a calculation failed",
    11: "it touched memory that is not its own",
    15: "somebody ended it",
}
_TOLD = (4, 9, 15)  # what to do is in the words, or there is nothing to do
