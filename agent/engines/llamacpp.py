"""llama.cpp's llama-server: exact option names, no `--key=value`, `_` counts as `-` in long options.

What is SlotServe's is taken out in every spelling and put in again at the end; what is left is passed on as it stands.
The parser here follows llama-server's own: a value option takes exactly the next tokens, whatever they look like.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agent.engines.base import Dropped, Ended, Place, Prepared, Verdict
from agent.engines.environment import engine_environment, passable
from agent.engines.failures_llamacpp import classify_llamacpp
from agent.llamacpp_options import options

# An option by its first spelling -> why SlotServe keeps it to itself.
_OTHER_MODEL = "SlotServe chooses the model; this would fetch or choose another one"
_TLS = "the gateway ends TLS; the engine is reached through a private socket only"
_ROUTER = "one channel runs one model; llama-server's own router mode would load others"
_EXITS = "the engine would print something and end instead of serving"
OWNED: Mapping[str, str] = {
    "-m": "SlotServe chooses the model",
    **dict.fromkeys(("-mu", "-hf", "-hff", "-dr"), _OTHER_MODEL),
    "-hft": "SlotServe serves the model on the disk; engines fetch nothing",
    **dict.fromkeys(
        (
            "--embd-gemma-default",
            "--fim-qwen-1.5b-default",
            "--fim-qwen-3b-default",
            "--fim-qwen-7b-default",
            "--fim-qwen-7b-spec",
            "--fim-qwen-14b-spec",
            "--fim-qwen-30b-default",
            "--gpt-oss-20b-default",
            "--gpt-oss-120b-default",
            "--vision-gemma-4b-default",
            "--vision-gemma-12b-default",
            "--spec-default",
        ),
        "a hidden preset of llama-server: it chooses another model and port",
    ),
    "-a": "SlotServe names the model",
    "--tags": "SlotServe names the model",
    "--host": "SlotServe sets the address, so that calls go through the gateway",
    "--port": "SlotServe chooses a free port at every start",
    "--reuse-port": "the engine's port is its own; sharing it would mix two engines",
    "--api-prefix": "calls would no longer arrive: the gateway knows llama-server's own paths",
    "--path": "files would be served beside the model; the gateway knows llama-server's own paths",
    "--api-key": "SlotServe gives the engine a new key at every start",
    "--api-key-file": "SlotServe gives the engine a new key at every start",
    **dict.fromkeys(("--ssl-key-file", "--ssl-cert-file"), _TLS),
    **dict.fromkeys(("--models-dir", "--models-preset", "--models-max", "--models-autoload"), _ROUTER),
    **dict.fromkeys(("-h", "--version", "-cl", "--list-devices", "--completion-bash"), _EXITS),
    "--offline": "SlotServe sets it itself",
}
# An administrator may use these: they read or write files, run tools, or open the engine to others.
PERMISSIONED = frozenset(
    (
        *("--tools", "--tools-runtime", "-ag", "--mcp-servers-config", "--mcp-servers-json", "--ui-mcp-proxy"),
        *("--media-path", "--slot-save-path", "--log-file", "--log-prompts-dir", "-lcd", "--rpc"),
        *("--cors-origins", "--cors-methods", "--cors-headers", "--cors-credentials"),
    )
)
_SECRET = frozenset(("--api-key", "-hft"))
_BARE = re.compile(r"[^-]|-$|-[0-9.]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as llama-server would read it. `option` is the first spelling, None for what is not an option we know."""

    option: str | None
    typed: str  # as it was written, for people
    tokens: tuple[str, ...]  # as llama-server takes it
    flag: str  # the spelling used, `_` mapped
    complete: bool = True


class LlamaCpp:
    """The engine "llama.cpp". Stateless."""

    name = "llama.cpp"
    formats = frozenset({"gguf"})
    unix_socket = True
    beside: tuple[int, ...] = ()
    options: Mapping[str, tuple[str, int]] = MappingProxyType(options())
    # Read by every llama-server before its arguments; only an administrator can have made it: `doctor` warns of it.
    system_config_files: tuple[str, ...] = ("/etc/llama.cpp/config.ini",)

    def prepare(
        self,
        program: Sequence[str],
        args: Sequence[str],
        env: Mapping[str, str],
        place: Place,
        inherited: Mapping[str, str],
        node_env: Mapping[str, str] = MappingProxyType({}),
    ) -> Prepared:
        """See base.Engine: the preset's arguments without what is ours, then ours."""
        kept: list[str] = []
        dropped: list[Dropped] = []
        unknown: list[str] = []
        permissioned: list[str] = []
        for argument in self.read(args):
            why = self._why_dropped(argument)
            if why is not None:
                dropped.append(Dropped(_shown(argument), why))
                continue
            if argument.option is None:
                unknown.append(argument.flag)
            elif argument.option in PERMISSIONED and not argument.flag.startswith(("--no-", "-no-")):
                permissioned.append(argument.flag)
            kept.extend(argument.tokens)
        made, env_dropped, env_permissioned = engine_environment(env, inherited, node_env, place)
        made["LLAMA_API_KEY"] = place.engine_key
        return Prepared(
            command=(*program, *kept, *self._ours(args, place)),
            env=made,
            dropped=(*dropped, *env_dropped),
            unknown=tuple(dict.fromkeys(unknown)),
            needs_permission=tuple(dict.fromkeys((*permissioned, *env_permissioned))),
            kept=tuple(kept),
        )

    def read(self, tokens: Sequence[str]) -> Iterator[Argument]:
        """The tokens as llama-server's own parser groups them. Total: every token is in exactly one argument."""
        rest = deque(tokens)
        while rest:
            typed = rest.popleft()
            if _BARE.match(typed) or not typed:
                yield Argument(None, typed, (typed,), typed)
                continue
            flag, inline = self._split(typed)
            if flag not in self.options:
                values: tuple[str, ...] = ()
                if inline is None:
                    values = self._value_of_unknown(rest)
                elif _BARE.match(inline):
                    values = (inline,)
                else:
                    flag = typed  # in two pieces the second could be read as an option of ours
                yield Argument(None, " ".join((typed, *(values if inline is None else ()))), (flag, *values), flag)
                continue
            option, count = self.options[flag]
            if inline is not None and count == 0:
                # Nobody knows what was meant; the engine refuses it, as long as it stays in one piece.
                yield Argument(option if option in OWNED else None, typed, (typed,), typed)
                continue
            given = [] if inline is None else [inline] if count < 2 else inline.split()
            following = (
                [rest.popleft() for _ in range(min(count - len(given), len(rest)))] if count > len(given) else []
            )
            complete = len(given) + len(following) >= count
            yield Argument(option, " ".join((typed, *following)), (flag, *given, *following), flag, complete)

    def suggest(self, flag: str) -> str | None:
        """The option that an unknown one was probably meant to be; none of SlotServe's own, for it would be dropped."""
        known = [spelling for spelling, (option, _) in self.options.items() if option not in OWNED]
        close = difflib.get_close_matches(_normal(flag), known, n=1, cutoff=0.75)
        return close[0] if close else None

    def check_command(self, prepared: Prepared) -> tuple[str, ...]:
        """A command that only lets the engine read its arguments: exit 0 in well under a second, or 1 and its complaint.
        Nothing is loaded, no port opened: options are handled in order, and the last one prints the version and ends."""
        return (*prepared.command, "--version")

    def classify(self, output: str, ended: Ended, args: Sequence[str]) -> Verdict:
        """See base.Engine; the advice names the preset's present values."""
        return classify_llamacpp(output, ended, self.values(args))

    def values(self, args: Sequence[str]) -> dict[str, str]:
        """The options in force by their first spelling (the last of each counts), flags without a value as ""."""
        return {a.option: " ".join(a.tokens[1:]) for a in self.read(args) if a.option is not None and a.complete}

    def served_names(self, place: Place) -> tuple[str, ...]:
        """The names as the engine will show them: a comma separates names there, so it cannot be part of one."""
        return tuple(dict.fromkeys(name.replace(",", "_").strip() or "_" for name in place.served_names))

    def _ours(self, args: Sequence[str], place: Place) -> tuple[str, ...]:
        """Ours, last. `--offline` leads on purpose: an unknown option at the end of a preset's may take one value, and
        then takes that one instead of breaking our own into pieces."""
        where = ("--host", place.socket) if place.socket else ("--host", place.host, "--port", str(place.port))
        names = ("--alias", ",".join(self.served_names(place))) if place.served_names else ()
        return ("--offline", *self._projector(args, place), "-m", place.model_path, *names, *where)

    def _projector(self, args: Sequence[str], place: Place) -> tuple[str, ...]:
        """The model's own projector, unless the preset names one or wants none."""
        if not place.projector or {a.option for a in self.read(args)} & {"-mm", "-mmu", "--mmproj-auto"}:
            return ()
        return ("--mmproj", place.projector)

    def _why_dropped(self, argument: Argument) -> str | None:
        if argument.option is not None and argument.option in OWNED:
            return OWNED[argument.option]
        if not argument.complete:
            return "it needs a value and none follows"
        if not all(passable(token) for token in argument.tokens):
            return "it holds a character that cannot be passed to a program"
        return None

    def _split(self, typed: str) -> tuple[str, str | None]:
        """The flag of a token, and the value written in the same token where there is one: `--ctx-size=4096`, or
        `--ctx-size 4096` in one piece. llama-server knows neither, so there is nothing that this could break."""
        flag = _normal(typed)
        if flag in self.options:
            return flag, None
        head, sign, value = typed.partition("=")
        flag = _normal(head.strip())
        if sign and (flag in self.options or (flag.startswith("--") and not re.search(r"\s", flag))):
            return flag, value
        parts = typed.split(None, 1)
        if len(parts) == 2 and _normal(parts[0]) in self.options:
            return _normal(parts[0]), _unquoted(parts[1])
        return _normal(typed), None

    def _value_of_unknown(self, rest: deque[str]) -> tuple[str, ...]:
        """An unknown option may or may not take a value; what follows and is no option belongs to it as far as anyone can say."""
        return (rest.popleft(),) if rest and rest[0] and _BARE.match(rest[0]) else ()


def _normal(token: str) -> str:
    return token.replace("_", "-") if token.startswith("--") else token


def _unquoted(value: str) -> str:
    """Somebody who writes an option and its value in one piece writes quotes as for a shell."""
    if value[:1] in "'\"" and value[-1:] == value[:1] and len(value) > 1:
        try:
            words = shlex.split(value)
        except ValueError:
            return value
        return words[0] if len(words) == 1 else value
    return value


def _shown(argument: Argument) -> str:
    """As it was typed; a key's value is not repeated."""
    if argument.option in _SECRET and len(argument.tokens) > 1:
        return f"{argument.flag} …"
    return argument.typed
