"""`slotserve logs CHANNEL [-f]`: an engine's own output, by offset, launch after launch."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click

from controller.cli.app import App
from controller.cli.client import Client, Refused, path_of
from controller.cli.options import CHANNEL, command, name_of, until_interrupted
from controller.terminal_text import Folder

PIECE = 65_536
PAUSE = 1.0


@click.command()
@click.argument("name", type=CHANNEL, metavar="CHANNEL")
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C, also with the next launch.")
@click.option("--previous", is_flag=True, help="The failed launch before.")
@click.option("--launch", help="That launch; see --launches.")
@click.option("--launches", is_flag=True, help="List the launches whose output is kept.")
@click.option("--raw", is_flag=True, help="As it came: with every state of a progress bar, and colours.")
@click.option("--offset", type=click.IntRange(0), help="From this byte of the launch's output on.")
@click.option("--bytes", "size", type=click.IntRange(1), default=PIECE, help="How much of the end to begin with.")
@command
def logs(
    app: App,
    name: str,
    follow: bool,
    previous: bool,
    launch: str | None,
    launches: bool,
    raw: bool,
    offset: int | None,
    size: int,
) -> None:
    """The engine's own output, by offset; a progress bar is one line, colours are left out."""
    if previous and launch:
        raise click.UsageError("--previous and --launch: give one of them")
    where = path_of("channels", name) + "/log"
    with app.client() as client:
        if launches:
            show_launches(app, client.get(f"{where}/launches"))
            return
        reader = _Reader(app, client, where, "previous" if previous else launch, _printer(app, raw))
        with until_interrupted():
            reader.run(-size if offset is None else offset, size if offset is None else PIECE, follow)


def show_launches(app: App, answer: dict[str, Any]) -> None:
    """Newest first, as `--launch` takes them."""
    rows = [
        [x["id"], app.when(x["launched_at"]), name_of(x), _state(x), f"{x['size'] / 1e3:,.0f} kB"]
        for x in answer["items"]
    ]
    app.out(answer, lambda: app.table(["launch", "started", "model", "state", "output"], rows, "No output is kept."))


class _Reader:
    """One channel's output. `wanted`: a launch, or None for what runs, whatever that is by then."""

    def __init__(
        self, app: App, client: Client, where: str, wanted: str | None, show: Callable[[dict[str, Any]], None]
    ) -> None:
        self._app, self._client, self._where, self._wanted, self._show = app, client, where, wanted, show
        self._waiting = False

    def run(self, offset: int, limit: int, follow: bool) -> None:
        piece = self._get(offset, limit, self._wanted, follow)
        if self._app.as_json and not follow:
            self._app.out(piece, lambda: None)
            return
        if offset < 0 < piece["offset"]:
            piece = {**piece, "text": _whole_lines(piece["text"])}
        while True:
            self._show(piece)
            if piece["text"]:
                piece = self._get(piece["next_offset"], PIECE, piece["launch"]["id"], follow)
                continue
            if not follow or (self._wanted and piece["ended"]):
                return
            after = self._get(piece["next_offset"], PIECE, self._wanted, follow)
            if after["file"] != piece["file"]:
                self._rest(piece, follow)
                click.echo(
                    f"--- {name_of(after['launch'])}, {self._app.when(after['launch']['launched_at'])} ---", err=True
                )
                after = self._get(0, PIECE, after["launch"]["id"], follow)
            elif not after["text"]:
                time.sleep(PAUSE)
            piece = after

    def _rest(self, piece: dict[str, Any], follow: bool) -> None:
        """What a launch still said before the next one began."""
        while (piece := self._get(piece["next_offset"], PIECE, piece["launch"]["id"], follow))["text"]:
            self._show(piece)
        self._show(piece)

    def _get(self, offset: int, limit: int, launch: str | None, follow: bool) -> dict[str, Any]:
        """Somebody who follows waits while the controller is away, and for the first launch."""
        while True:
            try:
                piece: dict[str, Any] = self._client.get(self._where, offset=offset, limit=limit, launch=launch)
            except Refused as err:
                if not follow or not self._passes(err, launch):
                    raise
                if not self._waiting:
                    click.echo(f"{err.message}; waiting, Ctrl-C ends it", err=True)
                self._waiting = True
                time.sleep(PAUSE)
            else:
                self._waiting = False
                return piece

    def _passes(self, err: Refused, launch: str | None) -> bool:
        """Whether it is worth waiting. Raises where there is no such channel."""
        if err.status != 404:
            return err.status == 0 or err.status >= 500
        if not launch:
            self._client.get(self._where.removesuffix("/log"))
        return not launch


def _printer(app: App, raw: bool) -> Callable[[dict[str, Any]], None]:
    """Prints pieces; one without text is the end for now: an unfinished line is shown as it is."""
    if app.as_json:
        return lambda piece: click.echo(json.dumps(piece, ensure_ascii=False)) if piece["text"] else None
    if raw:
        return lambda piece: click.echo(_harmless(piece["text"]), nl=False, color=True)
    folder = Folder()

    def fold(piece: dict[str, Any]) -> None:
        click.echo(folder.feed(piece["text"]) if piece["text"] else folder.flush(), nl=False)

    return fold


def _whole_lines(text: str) -> str:
    """Without the rest of a line that the end of an output begins with."""
    _, newline, rest = text.partition("\n")
    return rest if newline and rest else text


def _harmless(text: str) -> str:
    """Nothing in it may steer a terminal."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _state(launch: dict[str, Any]) -> str:
    return "failed" if launch["failed"] else "ended" if launch["ended"] else "runs"
