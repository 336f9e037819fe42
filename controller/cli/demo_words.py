"""What `slotserve demo` tells whoever started it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from controller.cli.booking_words import curl_line
from controller.cli.demo_files import Person


def all_is_up(
    people: list[Person], models: list[str], console: str, gateway: str, model: str | None, root: Path
) -> str:
    """What a person is told once all is up."""
    admin, users = people[0], people[1:]
    program = shutil.which("slotserve", path=str(Path(sys.executable).parent)) or "slotserve"
    return f"""
Console   {console}
          user {admin.name}, password {admin.password}
          {" and ".join(f"user {u.name}, password {u.password}" for u in users)}
REST      {console}/api/v1
Gateway   {gateway}/v1
API key   {admin.api_key}
Models    {", ".join(models)}

Ask a model:
{curl_line(gateway, "", admin.api_key, model or "auto")}

Book one from another terminal (as {users[0].name}), and see the channel switch:
export SLOTSERVE_URL={console} SLOTSERVE_API_KEY={users[0].api_key}
{program} book '{models[-1]}' --channel local/b --for 10m
{program} status --watch

All of this is also in {root / "demo.json"}. Ctrl-C stops everything.
"""
