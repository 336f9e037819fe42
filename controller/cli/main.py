"""`slotserve`: the command line. Sub-commands are imported when they are called, so that `slotserve status` stays quick.

Exit status 0; 1 = refused, with the reason on stderr; 2 = wrong usage.
"""

from __future__ import annotations

import importlib

import click
from click.shell_completion import CompletionItem

from controller.cli import shells
from controller.cli.app import App

# Chapter of the help -> command -> (module, attribute, help in one line)
CHAPTERS: dict[str, dict[str, tuple[str, str, str]]] = {
    "Book": {
        "status": ("status", "status", "What every channel does now, and your bookings."),
        "book": ("booking", "book", "Book a channel for a model."),
        "slots": ("booking", "slots", "The nearest free windows."),
        "bookings": ("bookings", "bookings", "Bookings: yours, or everybody's."),
        "booking": ("bookings", "booking", "One booking: show, edit, extend, move, end, approve …"),
    },
    "Look": {
        "channels": ("channels", "channels", "Channels: what they run and why."),
        "channel": ("channels", "channel", "One channel: show, set, override, reload, retry."),
        "plan": ("channels", "plan", "A channel's timetable of the next hours."),
        "logs": ("logs", "logs", "An engine's own output."),
        "models": ("models", "models", "Models and where they lie."),
        "presets": ("models", "presets", "Named engine parameters."),
        "preset": ("models", "preset", "Add, edit or remove a preset."),
        "nodes": ("nodes", "nodes", "GPU machines."),
        "usage": ("reports", "usage", "Requests and GPU time."),
    },
    "Yourself": {
        "login": ("login", "login", "Store the controller's address and your API key."),
        "keys": ("people", "keys", "Your API keys."),
        "key": ("people", "key", "Create or revoke an API key."),
        "notifications": ("notifications", "notifications", "What you have been told, and how you are told."),
        "feeds": ("feeds", "feeds", "Your calendar feeds."),
        "feed": ("feeds", "feed", "Create, list or revoke a calendar feed."),
        "completion": ("completion", "completion", "Make Tab complete commands and names in your shell."),
    },
    "Administer": {
        "node": ("nodes", "node", "Add, cordon, drain or remove a node."),
        "users": ("people", "users", "People."),
        "user": ("people", "user", "Add, edit or disable a person."),
        "audit": ("reports", "audit", "Who did what, and when."),
        "settings": ("server", "settings", "Settings in force and where each comes from."),
        "openapi": ("server", "openapi", "Print the REST interface's description (OpenAPI 3.1)."),
    },
    "On the controller's own machine": {
        "demo": ("demo", "demo", "Run a whole SlotServe on this machine, to try it out."),
        "serve": ("server", "serve", "Run the controller: console, REST, planner, ports."),
        "migrate": ("server", "migrate", "Bring the database to this version."),
        "doctor": ("doctor", "doctor", "Look for what is wrong with settings, database and nodes."),
        "backup": ("backup", "backup", "Save database, certificates and secrets to a file."),
        "restore": ("backup", "restore", "Put a backup in place of what is there."),
        "recount": ("server", "recount", "Make the daily sums of usage anew."),
        "ca": ("authority", "ca", "The fleet's certificate authority: show or change it."),
    },
}
COMMANDS = {name: row for chapter in CHAPTERS.values() for name, row in chapter.items()}

shells.register()


class Lazy(click.Group):
    """A group whose commands live in modules that are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        found: click.Command = getattr(importlib.import_module(f"controller.cli.{module}"), attribute)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Likewise: Tab is to be quick."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=row[2]) for name, row in COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table alone: help imports nothing."""
        widest = max(map(len, COMMANDS))
        for title, chapter in CHAPTERS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), row[2]) for name, row in chapter.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="slotserve", prog_name="slotserve")
@click.option("--json", "as_json", is_flag=True, help="Answers as JSON, for scripts (also after the command).")
@click.pass_context
def main(ctx: click.Context, /, as_json: bool) -> None:
    """Time slots for shared GPU machines that serve language models.

    SLOTSERVE_URL and SLOTSERVE_API_KEY say where the controller is and who you are; `slotserve login` stores both.
    """
    ctx.obj = ctx.obj or App()
    ctx.obj.as_json = ctx.obj.as_json or as_json


if __name__ == "__main__":
    main()
