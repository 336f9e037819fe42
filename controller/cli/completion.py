"""`slotserve completion`: what a shell reads once to offer names after Tab (complete.py says which, shells.py how)."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from controller.cli.app import App
from controller.cli.options import command


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@command
def completion(app: App, shell: str) -> None:
    """Print what makes Tab complete commands, options and names in your shell.

    \b
    bash  eval "$(slotserve completion bash)"    in ~/.bashrc
    zsh   eval "$(slotserve completion zsh)"     in ~/.zshrc, after compinit
    fish  slotserve completion fish > ~/.config/fish/completions/slotserve.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.get_current_context().find_root().command, {}, "slotserve", "_SLOTSERVE_COMPLETE").source()
    app.out({"shell": shell, "script": script}, lambda: click.echo(script))
