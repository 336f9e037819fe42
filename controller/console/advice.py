"""What an agent says of a failure, in the reader's language: its English sentence is recognised and said anew.

The agent's words travel as text (it works without a controller); each rule here is one of its sentences. A sentence that no
rule knows, and every one for a reader of English, is shown as the agent said it. A test holds the rules against the corpus.
"""

from __future__ import annotations

import re

from flask_babel import get_locale
from flask_babel import gettext as _
from markupsafe import Markup, escape

from controller.console import show
from controller.words import N_

NOW = N_("%(option)s (now %(value)s)")
HOLDS = N_("%(command)s (pid %(pid)s, user %(user)s, %(memory)s on %(gpu)s)")
_OPTION = r"(\S+(?: \(now [^)]*\))?)"
# the sentence without its first capital -> what it is in words, the groups as %(a)s, %(b)s, %(c)s
_RULES: tuple[tuple[str, str], ...] = (
    (rf"out of GPU memory: lower {_OPTION} or {_OPTION}", N_("Lower %(a)s or %(b)s.")),
    (rf"out of main memory: lower {_OPTION} or use a smaller model",
     N_("Out of main memory: lower %(a)s or use a smaller model.")),
    (rf"the KV cache is too small for the context: lower {_OPTION} to (\d+)", N_("Lower %(a)s to %(b)s.")),
    (rf"the KV cache is too small for the context: lower {_OPTION} or raise {_OPTION}", N_("Lower %(a)s or raise %(b)s.")),
    (rf"no memory is left for the KV cache: raise {_OPTION} or lower {_OPTION}",
     N_("No memory is left for the KV cache: raise %(a)s or lower %(b)s.")),
    (rf"no memory is left for the KV cache: raise {_OPTION}, or use fewer bits or more GPUs",
     N_("No memory is left for the KV cache: raise %(a)s, or use fewer bits or more GPUs.")),
    (r"the GPU's memory is held by other processes: .*", N_("Other processes hold the GPU’s memory: they must end first.")),
    (r"the GPU is held by somebody else's process: (.*); the model starts as soon as it is gone",
     N_("%(a)s. The model starts as soon as it is gone.")),
    (r"bad argument: the engine does not know (.+); correct it in the preset, or use an engine that knows it",
     N_("The engine does not know %(a)s: correct it in the preset, or use an engine that knows it.")),
    (r"bad argument: the engine refuses the value of (\S+) \((.*)\); correct it in the preset",
     N_("The engine refuses the value of %(a)s (%(b)s): correct it in the preset.")),
    (r"bad argument: the engine says (.+); correct the preset", N_("The engine says %(a)s: correct the preset.")),
    (rf"bad argument: the model allows (\d+) tokens of context, and (\d+) are asked for: lower {_OPTION}",
     N_("The model allows %(a)s tokens of context, and %(b)s are asked for: lower %(c)s.")),
    (r"bad argument: (\d+) GPUs cannot share the model's (\d+) attention heads evenly: .*",
     N_("%(a)s GPUs cannot share the model’s %(b)s attention heads evenly: choose a tensor parallel size that divides them.")),
    (r"file missing: (.+) is not on this node; put it there, or correct the path",
     N_("%(a)s is not on this node: put it there, or correct the path.")),
    (r"file not readable: (.+) cannot be read by the agent's user; give it the right to read it",
     N_("The agent’s user cannot read %(a)s: give it the right to.")),
    (r"file missing: the model's folder has no (\S+) that this engine can read; copy the model again, whole",
     N_("The model’s folder has no %(a)s that this engine can read: copy the model again, whole.")),
    (r"model (.+) is not in the channel's model folders \((.*)\): put it there",
     N_("%(a)s is not in the channel’s model folders (%(b)s): put it there.")),
    (r"the model's file (.+) is gone: put it back, or choose another model",
     N_("%(a)s is gone: put it back, or choose another model.")),
    (r"model (.+?): (.+); copy it again, whole", N_("%(a)s (%(b)s): copy it again, whole.")),
    (r"the node's file does not say how to start (\S+): add (.+)",
     N_("The node’s file does not say how to start %(a)s: add %(b)s.")),
    (r"broken file: .*; copy it again and compare its size and checksum",
     N_("Copy it again and compare its size and checksum.")),
    (r"unsupported architecture '?([^':]+)'?: .* does not know it; a newer one may",
     N_("This engine does not know %(a)s; a newer one may.")),
    (r"port taken.*; the next try takes another port", N_("The next try takes another port.")),
    (r"socket taken: (.+) could not be opened; something else is there, or its folder is missing",
     N_("%(a)s could not be opened: something else is there, or its folder is missing.")),
    (r"missing shared library (\S+): install it on the node, or set LD_LIBRARY_PATH .*",
     N_("%(a)s is missing: install it on the node, or set LD_LIBRARY_PATH for the engine in the node’s file.")),
    (r"a shared library of this node is too old for this engine: .*",
     N_("A shared library of this node is too old for this engine: update it, or use another build of the engine.")),
    (r"the engine's program, or something that it needs, is not on this node: install it",
     N_("The engine’s program, or something that it needs, is not on this node: install it.")),
    (r".*\(SIGKILL\): most likely main memory ran out and the kernel ended it; .*",
     N_("Most likely main memory ran out: see the node’s kernel log, and lower the context or use a smaller model.")),
    (r"the engine found no GPU.*: look at the driver \(nvidia-smi\), then retry",
     N_("The engine found no GPU: look at the driver (nvidia-smi), then retry.")),
    (r"the engine answers, but has no memory on the channel's GPUs: .*",
     N_("It runs on the processor: see whether its driver is loaded and its program is built for this GPU.")),
    (r"not ready within its load time-out: .*",
     N_("Give the preset a longer load time-out, or move the model to a faster disk.")),
    (r"the engine hangs: .* it is started anew",
     N_("It answers neither requests nor its health check, and uses no processor time; it is started anew.")),
    (r"the engine(?: \(pid (\d+)\))? is still there .* after SIGKILL.*",
     N_("The process (pid %(a)s) outlives SIGKILL: look at it and the GPU driver on the node; a restart of the machine may be needed.")),
    (r"the engine's own health check has failed for (.+); it is started anew",
     N_("Its health check has failed for %(a)s; it is started anew.")),
    (r"the engine met an error of the GPU or its driver .*",
     N_("An error of the GPU or its driver; it is started anew. Where that happens again, see the node’s kernel log (Xid) "
        "and the card’s temperature, and try another version of driver or engine.")),
    (r".*\(SIG(\w+)\); where that happens again, try another version of it",
     N_("It crashed (SIG%(a)s). Where that happens again, try another version of it.")),
    (r"the engine crashed .*: somebody ended it \((\w+)\)", N_("Somebody ended it (%(a)s).")),
    (r".* with exit status (-?\d+); see its output", N_("It ended with exit status %(a)s; see its output.")),
    (r".*; see its output", N_("See its output.")),
    # of what an agent finds before it starts anything, or when nothing is left to look at
    (r"(?:the engine )?could not be started: (.*)", N_("It could not be started: %(a)s.")),
    (r"the engine was stopped from outside: its shim was sent SIGTERM",
     N_("Somebody stopped it from outside: its shim was sent SIGTERM.")),
    (r"the engine's shim was killed from outside, and the engine with it",
     N_("Somebody killed its shim from outside, and the engine with it.")),
    (r"the engine's program (.+) does not exist; mend its command in the node's file",
     N_("The engine’s program %(a)s is not there: mend its command in the node’s file.")),
    (r"the engine's program (.+) is not there or may not be executed; mend (\S+) in the node's file",
     N_("The engine’s program %(a)s is not there or may not be executed: mend %(b)s in the node’s file.")),
    (r"the engine's program (.+) may not be executed", N_("The engine’s program %(a)s may not be executed.")),
    (r"model (.+) is not there", N_("Model %(a)s is not there.")),
    (r"channel (\S+) has no engine (\S+) \(it has: (.*)\)", N_("Channel %(a)s has no engine %(b)s; it has %(c)s.")),
    (r"(\S+) is not an engine that SlotServe can start", N_("%(a)s is no engine that SlotServe can start.")),
    (r"(\S+) cannot load (\S+) models such as (.+)", N_("%(a)s cannot load %(b)s models such as %(c)s.")),
    (r"the engine before \(pid (.+)\) cannot be ended; nothing is started",
     N_("The engine before (pid %(a)s) cannot be ended; nothing is started.")),
    (r"the engine's socket (.+) has (\d+) bytes, at most (\d+) are possible: .*",
     N_("The engine’s socket %(a)s has %(b)s bytes, %(c)s are the most: set SLOTSERVE_AGENT_RUN_DIR to a shorter folder.")),
    (r"(.+); without it the engine would run on the processor",
     N_("%(a)s. Without it the engine would run on the processor.")),
    # of the cards of a node
    (r"no GPU can be seen \((.*)\)", N_("No GPU can be seen: %(a)s.")),
    (r"GPU (.+) cannot be seen \(there are (\d+) others\)", N_("GPU %(a)s cannot be seen; there are %(b)s others.")),
)  # fmt: skip
RULES = tuple((re.compile(pattern, re.DOTALL), words) for pattern, words in _RULES)
_CAUSE_FIRST = re.compile(r"^([Oo]ut of \w+ memory)\. (\w)")
_HOLDER = re.compile(r"(.+?) \(pid (\d+), user ([^,]+), ([\d.]+ GB) on ([^)]*)\)")
_WITH_VALUE = re.compile(r"(\S+) \(now ([^)]*)\)")


def spoken(reason: str, cause: str) -> Markup:
    """The reason without the cause that stands before it already, in the reader's language as far as it is known."""
    if str(get_locale() or "en") != "en":
        found = recognised(reason)
        if found is not None:
            words, groups = found
            values = {name: _value(value) for name, value in zip("abc", groups, strict=False)}
            return Markup(escape(_(words) % values))
    rest = show.beyond(reason, cause)
    if not cause:
        rest = rest[:1].upper() + rest[1:]
    return Markup('<span lang="en">{}</span>').format(rest) if rest else Markup("")


def recognised(reason: str) -> tuple[str, tuple[str, ...]] | None:
    """(the words, what stands in their places) of a sentence of an agent."""
    flat = _CAUSE_FIRST.sub(lambda m: f"{m[1]}: {m[2].lower()}", reason.strip().rstrip("."))
    for pattern, words in RULES:
        match = pattern.fullmatch(flat) or pattern.fullmatch(flat[:1].lower() + flat[1:])
        if match is not None:
            return words, tuple(g or "?" for g in match.groups())
    return None


def _value(text: str) -> str:
    """An option with its value, or processes that hold a card, in the reader's words; anything else as it is."""
    match = _WITH_VALUE.fullmatch(text)
    if match is not None:
        return _(NOW) % {"option": match[1], "value": match[2]}
    return _HOLDER.sub(
        lambda m: _(HOLDS) % dict(zip(("command", "pid", "user", "memory", "gpu"), m.groups(), strict=True)), text
    )
