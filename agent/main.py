"""The `slotserve-agent` command: `run` and `gateway` are the two services of a node, the rest is for people.

What a subcommand needs is imported by it alone: the gateway must not load gRPC, nor the agent uvloop.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slotserve")
def main() -> None:
    """A node of SlotServe. Settings are environment variables; the node's file is SLOTSERVE_NODE_FILE."""


class _Help(click.Command):
    """Help that ends with the settings."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from agent.settings import AgentSettings

        rows = []
        for name, field in AgentSettings.model_fields.items():
            value = "not set" if field.default is None else field.default
            rows.append((f"SLOTSERVE_{name.upper()}", f"{field.description} [{value}]"))
        with formatter.section("Settings (environment; each also as …_FILE; those not set come with the plan)"):
            formatter.write_dl(rows)


@main.command(cls=_Help)
def run() -> None:
    """Run the agent until SIGTERM. Engines go on when it ends."""
    from agent.errors import AgentError
    from agent.process import run as run_agent

    settings = _settings()
    file = _node_file(settings)
    try:
        asyncio.run(run_agent(file, settings))
    except AgentError as err:
        _fail(str(err))


@main.command(cls=_Help)
@click.option("--replace", is_flag=True, help="Start one in the place of the one that runs, and return when it serves.")
def gateway(replace: bool) -> None:
    """Run the gateway until SIGTERM. It serves on while the agent or the controller is away.

    One that is started while another runs with the same folder takes over its sockets; the old one finishes what it has.
    """
    if replace:
        from agent.gateway.handover import replace as start_in_place

        if why := start_in_place([sys.executable, *(w for w in sys.orig_argv[1:] if w != "--replace")]):
            _fail(f"no new gateway: {why}; the one that runs goes on")
        return
    from agent.gateway.main import run as run_gateway

    sys.exit(run_gateway(_settings()) or 0)


@main.command()
@click.argument("join")
def enrol(join: str) -> None:
    """Get this node's certificate with a JOIN string (from `slotserve node add NAME`; - reads it from standard input)."""
    from agent.enrolment import enrol as get_certificate
    from agent.errors import AgentError
    from agent.settings import NodeFileError, read_node_file
    from agent.state import State

    settings = _settings()
    name = None
    if settings.node_file.exists():
        try:
            name = read_node_file(settings.node_file).node
        except NodeFileError as err:
            _fail(str(err))
    text = sys.stdin.read() if join == "-" else join
    try:
        name = get_certificate(text, State(settings.agent_state_dir), name)
    except AgentError as err:
        _fail(str(err))
    click.echo(f"{name} is enrolled; its key and certificate are in {settings.agent_state_dir}")


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def status(as_json: bool) -> None:
    """What this node's channels do now (exit status 1: no agent runs)."""
    from agent import control, status_words
    from agent.errors import AgentError

    settings = _settings()
    try:
        said = {"running": True, **control.ask(settings.run_dir, "status", 5)}
    except control.NotRunning:
        said = {"running": False, **_last_status(settings.agent_state_dir)}
    except AgentError as err:
        _fail(str(err))
    said["enrolled"] = _enrolled(settings.agent_state_dir)
    said["notes"] = _notes(settings.agent_state_dir, said)
    click.echo(json.dumps(said) if as_json else status_words.text(said))
    sys.exit(0 if said["running"] else 1)


@main.command("stop-engines")
def stop_engines() -> None:
    """Stop every engine of this node, whether the agent runs or not."""
    from agent import control
    from agent.errors import AgentError

    settings = _settings()
    try:
        said = control.ask(settings.run_dir, "stop_engines")
    except control.NotRunning:
        from agent.stop import stop_all

        try:
            said = asyncio.run(stop_all(settings))
        except AgentError as err:
            _fail(str(err))
    except AgentError as err:
        _fail(str(err))
    if not said.get("stopped"):
        left = ", ".join(f"{r['channel']} (pid {r['pid']})" for r in said.get("running", []))
        _fail(said.get("error") or f"still running: {left}")
    click.echo("no engine runs")


@main.command("check-config")
def check_config() -> None:
    """Check the node's file and settings; every problem a line (exit status 1 when there is one), notes before them."""
    from agent.check import notes, problems

    settings = _settings()
    file = _node_file(settings)
    for note in notes(file):
        click.echo(f"note: {note}")
    found = problems(file, settings)
    for problem in found:
        click.echo(problem, err=True)
    if found:
        sys.exit(1)
    click.echo(f"{settings.node_file}: fine")


def _settings() -> Any:
    """The settings in force; the log is set up with them. Each variable may be given as a file (`…_FILE`)."""
    from pydantic import ValidationError

    from agent.settings import AgentSettings
    from protos.shared import logs

    given = {}
    for name in AgentSettings.model_fields:
        variable = f"SLOTSERVE_{name.upper()}"
        if path := os.environ.get(f"{variable}_FILE"):
            if variable in os.environ:
                _fail(f"{variable} and {variable}_FILE are both set; unset one of them")
            try:
                given[name] = Path(path).read_text().strip()
            except (OSError, UnicodeDecodeError) as err:
                _fail(f"{variable}_FILE: {err}")
    try:
        settings = AgentSettings(**given)  # type: ignore[arg-type]
        logs.set_up(settings.log_level, settings.log_format)
    except ValidationError as err:
        first = err.errors(include_input=False)[0]
        _fail(f"SLOTSERVE_{str(first['loc'][0]).upper()}: {first['msg']}")
    except ValueError as err:
        _fail(f"SLOTSERVE_LOG_LEVEL: {err}")
    return settings


def _node_file(settings: Any) -> Any:
    from agent.settings import NodeFileError, read_node_file

    try:
        return read_node_file(settings.node_file)
    except NodeFileError as err:
        _fail(str(err))


def _enrolled(folder: Path) -> dict[str, Any] | None:
    """Where the node's controller is and until when its certificate is good; None: it has none."""
    from cryptography import x509

    from agent.errors import NotEnrolled
    from agent.state import State

    try:
        identity = State(folder).identity()
        until = x509.load_pem_x509_certificate(identity.certificate).not_valid_after_utc
    except (NotEnrolled, ValueError):
        return None
    return {"fleet_address": identity.fleet_address, "certificate_until": until.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _notes(folder: Path, said: dict[str, Any]) -> list[str]:
    """What is going to be trouble on this node, with what to do."""
    import shutil
    from datetime import UTC, datetime

    from agent import status_words

    try:
        found = status_words.disk(shutil.disk_usage(folder).free, str(folder))
    except OSError as err:
        found = [f"{folder}: {err.strerror}"]
    if said["enrolled"]:
        found += status_words.certificate(said["enrolled"]["certificate_until"], datetime.now(UTC))
    return found + status_words.clock(said)


def _last_status(folder: Path) -> dict[str, Any]:
    try:
        said = json.loads((folder / "status.json").read_text())
        return said if isinstance(said, dict) else {}
    except (OSError, ValueError):
        return {}


def _fail(message: str) -> NoReturn:
    click.echo(f"slotserve-agent: {message}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
