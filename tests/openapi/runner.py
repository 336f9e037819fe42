"""`st run` on a controller: what it reported, and what became of the controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.openapi.served import fill, prepared, serving

ST = str(Path(sys.executable).parent / "st")
ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
# Would take away the key that is used; send something out of this machine.
LEFT_OUT = ("delete_keys_id", "post_notification_targets_id_test")


@dataclass(frozen=True)
class Outcome:
    """`clean`: no check failed; `text`: what schemathesis said; `log`: the controller's, warnings and worse."""

    clean: bool
    text: str
    log: str
    answers: dict[int, int]  # how many of each status


def knock(folder: Path, who: str, seconds: int, examples: int, *more: str) -> Outcome:
    """Starts a controller in `folder` and lets schemathesis at it with the key of `who`."""
    secrets = prepared(folder)
    with serving(folder) as (controller, url):
        fill(url, secrets)
        report = folder / "report.ndjson"
        left_out = [option for one in LEFT_OUT for option in ("--exclude-operation-id", one)]
        command = [
            ST, "--config-file", str(CONFIG), "run", f"{url}/openapi.json", *left_out,
            "-H", f"Authorization: Bearer {secrets[who]}", "--max-examples", str(examples), "--max-time", str(seconds),
            "--report-ndjson-path", str(report), *more,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds + 600, check=False
        )
        assert controller.alive(), controller.output()
        answer = httpx.get(
            f"{url}/me", headers={"Authorization": f"Bearer {secrets[who]}"}, trust_env=False, timeout=60
        )
        assert answer.status_code == 200, f"the run locked itself out: {answer.text}"
        return Outcome(done.returncode == 0, done.stdout + done.stderr, controller.output(), _answers(report))


def _answers(report: Path) -> dict[int, int]:
    found: dict[int, int] = {}
    for line in report.read_text().splitlines() if report.exists() else ():
        for status in _statuses(json.loads(line)):
            found[status] = found.get(status, 0) + 1
    return dict(sorted(found.items()))


def _statuses(value: object) -> list[int]:
    """Every response's status, wherever the report keeps it."""
    if isinstance(value, list):
        return [status for one in value for status in _statuses(one)]
    if not isinstance(value, dict):
        return []
    here = [value["status_code"]] if isinstance(value.get("status_code"), int) else []
    return here + [status for one in value.values() for status in _statuses(one)]
