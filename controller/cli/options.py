"""What commands share: `--json`, the App as first argument, names of channels and models."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.shell_completion import CompletionItem

from controller.cli import complete
from controller.cli.app import App

INTERRUPTED = 130  # the exit status of what SIGINT ended


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the function the App first and adds `--json`."""

    @click.option("--json", "as_json", is_flag=True, help="Answer as JSON, for scripts.")
    @click.pass_context
    @functools.wraps(function)
    def wrapped(ctx: click.Context, /, as_json: bool, **kwargs: Any) -> Any:
        app = ctx.find_object(App) or App()
        app.as_json = app.as_json or as_json
        return function(app, **kwargs)

    return wrapped


@contextmanager
def until_interrupted() -> Iterator[None]:
    """For what goes on until Ctrl-C: that is its end, and no mishap to be told about."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo()
        sys.exit(INTERRUPTED)


class Group(click.Group):
    """A group whose commands are told by their whole first sentence."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.get_short_help_str(limit=400)) for name, found in rows if found])


class ChannelName(click.ParamType[str]):
    """`node/name`."""

    name = "node/name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        node, slash, channel = str(value).partition("/")
        if not slash or not node or not channel or "/" in channel:
            self.fail(f"{value!r}: a channel is named node/name, for example gpu-a01/main", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return complete.offered(ctx, incomplete, complete.channels)


CHANNEL = ChannelName()


def name_of(pair: dict[str, Any] | None) -> str:
    """{model, preset} as `model:preset`, `model`, or a dash for nothing."""
    if not pair or not pair.get("model"):
        return "-"
    return f"{pair['model']}:{pair['preset']}" if pair.get("preset") else str(pair["model"])


def split_model(text: str, known: set[str]) -> tuple[str, str | None]:
    """MODEL[:PRESET]; a name that is a model as it stands wins, for names may hold colons."""
    if text in known or ":" not in text:
        return text, None
    model, _, preset = text.rpartition(":")
    return (model, preset) if model and preset else (text, None)
