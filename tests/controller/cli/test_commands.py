"""The command line against the real application in this process: what people and scripts see, and the exit status."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import select

from controller.cli.app import credentials_file
from controller.cli.main import COMMANDS, main
from controller.store.tables import Node
from tests.console_scene import HOSTILE, Scene
from tests.controller.cli.commands import Run


def test_every_command_has_help_and_none_breaks(run: Run) -> None:
    for name in COMMANDS:
        answer = run(None, name, "--help")
        assert answer.exit_code == 0, answer.output
        assert "Usage:" in answer.output


@pytest.mark.parametrize(
    "command",
    ["status", "channels", "nodes", "models", "presets", "bookings", "bookings --all", "keys", "users", "notifications", "audit", "usage",
     "channel show gpu-a01/c6", "plan gpu-a01/c7", "slots Qwen3-32B-Q4_K_M --for 30m"],
)  # fmt: skip
def test_looking_works_for_people_and_for_scripts(run: Run, command: str) -> None:
    people = run("lin", *command.split())
    assert people.exit_code == 0, people.output
    assert "\x1b" not in people.output  # no colours where it is no terminal
    scripts = run("lin", *command.split(), "--json")
    assert scripts.exit_code == 0, scripts.output
    assert isinstance(json.loads(scripts.output), dict)
    assert json.loads(run("lin", "--json", *command.split()).output) == json.loads(scripts.output)


def test_status_says_why_in_words_within_80_columns(run: Run) -> None:
    text = run("maya", "status").output
    assert "maya (user), times in Asia/Shanghai" in text
    assert "loading 84 of ~140 s" in text
    channels = text[text.index("edge-t4/g0  ") :]
    assert all(len(line) <= 80 for line in channels.splitlines())
    flowing = " ".join(channels.split())
    for sentence in (
        "Preloading for you, from 14:30",
        "Reserved by tomas until 16:00",
        "The default answers for sofia while gpt-oss-120b-MXFP4 waits for its next try",
        "Failed 9 times; next try at 14:32:38",
        "Exclusive for 阿哲; nothing is loaded",
        "Override by lin until 18:00, or until a booking begins",
        "No default set, so nothing is loaded",
        "No contact with its node",
    ):
        assert sentence in flowing


def test_the_plan_says_why_in_words_and_in_codes_for_scripts(run: Run) -> None:
    text = " ".join(run("tomas", "plan", "gpu-a01/c7").output.split())
    assert "Preloading for maya, who starts at 14:30" in text
    assert "Reserved by maya until 16:00; should it fail, Qwen3-32B-Q4_K_M answers meanwhile" in text
    assert "Default, open to all" in text
    steps = json.loads(run("tomas", "plan", "gpu-a01/c7", "--json").output)["steps"]
    assert [s["why"] for s in steps] == ["preload", "reserved", "default"]
    hidden = " ".join(run("tomas", "plan", "gpu-a02/tp4-b").output.split())
    assert "Exclusive for 阿哲; nothing is loaded" in hidden


def test_a_model_is_told_in_words(run: Run) -> None:
    text = run("maya", "models", "GLM-4.5-Air-Q4_K_M").output
    assert "GLM-4.5-Air-Q4_K_M  20.0 GB  gguf" in text
    assert "gpu-b01/g0  about 55 s" in text


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["book"], "Name a model, or --exclusive"),
        (["book", "m", "--exclusive"], "Name a model, or --exclusive"),
        (["book", "m", "--for", "soon"], "--for"),
        (["book", "m", "--at", "2026-11-20T09:00"], "names no time zone"),
        (["book", "m", "--channel", "nowhere"], "node/name"),
        (["channel", "override", "gpu-a01/c6"], "Name a model, or --unload, or --clear"),
        (["booking", "extend", "x"], "--by 30m"),
        (["booking", "reject", "x"], "--reason"),
        (["preset", "add", "nocolon", "--engine", "llama.cpp"], "MODEL:PRESET"),
        (["nonsense"], "No such command"),
    ],
)
def test_wrong_usage_is_2(run: Run, args: list[str], says: str) -> None:
    answer = run("maya", *args)
    assert answer.exit_code == 2
    assert says in answer.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["channel", "show", "gpu-a01/none"], "there is no channel gpu-a01/none (slotserve channels lists them)"),
        (["channel", "override", "gpu-a01/c6", "--unload"], "only an administrator"),
        (["booking", "show", "none"], "there is no booking none (slotserve bookings lists yours"),
        (["book", "No-Such-Model", "--channel", "gpu-a01/c6", "--at", "tomorrow 9:00"], "No-Such-Model"),
        (["book", "Qwen3-32B-Q4_K_M", "--channel", "gpu-a01/main", "--at", "9:00"], "already over"),
        (["audit"], "only an administrator"),
        (["preset", "edit", "a:b", "--args", "-c 1"], "no preset a:b"),
        (["user", "disable", "nobody", "--yes"], "nobody is called nobody"),
    ],
)
def test_refusals_are_1_with_the_reason_on_stderr(run: Run, args: list[str], says: str) -> None:
    answer = run("maya", *args)
    assert answer.exit_code == 1
    assert answer.stdout == ""
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr


def test_without_a_key_and_with_a_wrong_one(run: Run) -> None:
    for env in ({}, {"SLOTSERVE_API_KEY": "sk-ss-wrong"}):
        answer = run(None, "status", env=env)
        assert answer.exit_code == 1
        assert "slotserve login" in answer.stderr


def test_nobody_answers() -> None:
    answer = CliRunner().invoke(main, ["status"], env={"SLOTSERVE_URL": "http://127.0.0.1:1", "SLOTSERVE_API_KEY": "x"})
    assert answer.exit_code == 1
    assert "cannot reach http://127.0.0.1:1" in answer.stderr
    wrong = CliRunner().invoke(main, ["status"], env={"SLOTSERVE_URL": "controller"})
    assert "is not an address" in wrong.stderr


def test_administrators_set_override_and_presets(run: Run) -> None:
    assert (
        run(
            "lin", "channel", "set", "gpu-a01/main", "--default", "Qwen3-32B-Q4_K_M:long-context", "--lead", "5m"
        ).exit_code
        == 0
    )
    item = json.loads(run("lin", "channel", "show", "gpu-a01/main", "--json").output)
    assert (item["default_model"], item["default_preset"], item["preload_lead_seconds"]) == (
        "Qwen3-32B-Q4_K_M",
        "long-context",
        300,
    )
    assert run("lin", "channel", "override", "gpu-a01/main", "--unload", "--for", "1h").exit_code == 0
    item = json.loads(run("lin", "channel", "show", "gpu-a01/main", "--json").output)
    assert (item["why"], item["target"], item["override"]["until"]) == ("override", None, "2026-11-19T07:28:04Z")
    assert run("lin", "channel", "override", "gpu-a01/main", "--clear").exit_code == 0
    added = run(
        "lin",
        "preset",
        "add",
        "Qwen3-32B-FP8:short",
        "--engine",
        "llama.cpp",
        "--args",
        "-c 4096 --port 9 --ctx-sise 5",
        "--load-timeout",
        "20m",
    )
    assert added.exit_code == 0, added.output
    assert "Dropped --port" in added.output
    assert "Unknown to the engine: --ctx-sise (did you mean --ctx-size?)" in added.output
    assert "Qwen3-32B-FP8:short" in run("lin", "presets").output
    assert run("lin", "preset", "edit", "Qwen3-32B-FP8:short", "--args", "-c 8192").exit_code == 0
    assert run("lin", "preset", "remove", "Qwen3-32B-FP8:short").exit_code == 0


def test_people_and_keys(run: Run, world: Scene) -> None:
    made = json.loads(run("lin", "user", "add", "chen", "--json").output)
    assert made["role"] == "user"
    world.keys["chen"] = made["api_key"]
    assert json.loads(run("chen", "status", "--json").output)["me"]["name"] == "chen"
    secret = run("chen", "key", "create", "laptop", "--expires", "+30d")
    assert secret.stdout.startswith("sk-ss-")  # alone on stdout
    assert run("chen", "key", "revoke", "laptop").exit_code == 0
    assert run("lin", "user", "edit", "chen", "--role", "approver").exit_code == 0
    assert run("lin", "user", "disable", "chen", "--yes").exit_code == 0
    assert run("chen", "status").exit_code == 1


def test_login_stores_a_private_file_and_its_key_goes_nowhere_else(run: Run, world: Scene) -> None:
    answer = run(None, "login", "--key", world.keys["maya"])
    assert answer.output.startswith("Signed in as maya (user)")
    file = credentials_file()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(run(None, "status", "--json").output)["me"]["name"] == "maya"
    elsewhere = run(None, "status", env={"SLOTSERVE_URL": "http://other.test"})
    assert elsewhere.exit_code == 1
    assert run(None, "login", "--key", "sk-ss-wrong").exit_code == 1
    assert json.loads(file.read_text())["api_key"] == world.keys["maya"]


def test_the_first_administrator_is_made_on_the_machine_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    env = {"SLOTSERVE_STATE_DIR": str(tmp_path / "state"), "SLOTSERVE_URL": None, "SLOTSERVE_API_KEY": None}
    early = CliRunner().invoke(main, ["user", "add", "root", "--admin"], env=env)
    assert early.exit_code == 1
    assert "slotserve migrate" in early.stderr
    assert CliRunner().invoke(main, ["migrate"], env=env).exit_code == 0
    made = CliRunner().invoke(main, ["user", "add", "root", "--admin", "--password", "long enough", "--json"], env=env)
    assert made.exit_code == 0, made.output
    assert json.loads(made.output)["api_key"].startswith("sk-ss-")
    again = CliRunner().invoke(main, ["user", "add", "root2", "--admin"], env=env)
    assert again.exit_code == 1
    assert "there is an administrator already" in again.stderr


def test_settings_say_where_from(tmp_path: Path) -> None:
    file = tmp_path / "drain"
    file.write_text("12\n")
    env = {
        "SLOTSERVE_DRAIN_SECONDS_FILE": str(file),
        "SLOTSERVE_TICK_SECONDS": "2",
        "SLOTSERVE_DATABASE_URL": "postgresql://u:secret@h/d",
    }
    items = {
        i["variable"]: i for i in json.loads(CliRunner().invoke(main, ["settings", "--json"], env=env).output)["items"]
    }
    assert (items["SLOTSERVE_DRAIN_SECONDS"]["value"], items["SLOTSERVE_DRAIN_SECONDS"]["origin"]) == (12, str(file))
    assert (items["SLOTSERVE_TICK_SECONDS"]["value"], items["SLOTSERVE_TICK_SECONDS"]["origin"]) == (2, "environment")
    assert items["SLOTSERVE_STOP_TIMEOUT_SECONDS"]["origin"] == "default"
    assert "secret" not in items["SLOTSERVE_DATABASE_URL"]["value"]
    wrong = CliRunner().invoke(main, ["settings"], env={"SLOTSERVE_TICK_SECONDS": "fast"})
    assert (wrong.exit_code, "SLOTSERVE_TICK_SECONDS" in wrong.stderr) == (1, True)


def test_names_cannot_steer_the_terminal(run: Run, world: Scene) -> None:
    answer = run("lin", "models")
    assert HOSTILE in answer.output


def test_usage_is_ones_own_unless_an_administrator_asks(run: Run, world: Scene) -> None:
    from controller.store.tables import Node, Usage

    with world.store.write() as db:
        node = db.query(Node).filter_by(name="gpu-a01").one().id
        for i, who in enumerate(("maya", "tomas")):
            db.add(
                Usage(
                    id=f"r{i}", node_id=node, channel="c6", model="m", key_id="k", user_id=world.ids[who], at=world.now - 1000,
                    duration=1.5, first_byte=0.1, status=200, outcome="ok", bytes_in=1, bytes_out=2,
                )
            )  # fmt: skip
    assert [u["user"] for u in json.loads(run("maya", "usage", "--json").output)["items"]] == ["maya"]
    assert {u["user"] for u in json.loads(run("lin", "usage", "--all", "--json").output)["items"]} == {"maya", "tomas"}
    assert [u["user"] for u in json.loads(run("lin", "usage", "--user", "tomas", "--json").output)["items"]] == [
        "tomas"
    ]
    assert run("maya", "usage", "--all").exit_code == 1
    assert run("lin", "audit", "--since", "24h").exit_code == 0


def test_maintenance_and_rules_of_a_channel(run: Run) -> None:
    mine = ["book", "Qwen3-32B-FP8", "--channel", "gpu-a02/tp4-a", "--at", "2026-12-08 9:00", "--json"]
    mine = json.loads(run("tomas", *mine).output)
    taken = ["book", "--maintenance", "--channel", "gpu-a02/tp4-a", "--at", "2026-12-08 9:30", "--for", "2h"]
    assert run("tomas", *taken).exit_code == 1
    assert run("lin", *taken).exit_code == 1
    done = run("lin", *taken, "--clear", "--reason", "new driver")
    assert done.exit_code == 0, done.output
    assert "maintenance" in done.output
    assert "No model runs in this time" in done.output
    shorter = json.loads(run("tomas", "booking", "show", mine["id"], "--json").output)
    assert (shorter["ends_at"], shorter["reason"]) == ("2026-12-08T01:30:00Z", "new driver")
    rules = ["--policy", "max_hours=2", "--policy", "allowed_users=tomas", "--policy", "requests=true"]
    assert run("lin", "channel", "set", "gpu-a02/tp4-a", *rules).exit_code == 0
    shown = run("lin", "channel", "show", "gpu-a02/tp4-a").output
    assert "2 h at most" in shown
    assert "only for tomas" in shown
    assert "at most       no limit" in shown
    limits = ["--policy", "max_concurrent=8", "--policy", "max_concurrent_per_key=2"]
    shown = run("lin", "channel", "set", "gpu-a02/tp4-a", *limits).output
    assert "at most       8 at once, 2 at once with one key" in shown
    asked = ["book", "Qwen3-32B-FP8", "--channel", "gpu-a02/tp4-a", "--for", "3h", "--json", "--at"]
    ids = [json.loads(run("tomas", *asked, f"2026-12-09 {hour}:00").output)["id"] for hour in (9, 12)]
    seen = run("lin", "booking", "show", ids[0]).output
    assert "beyond   2 h at most on this channel" in seen
    both = run("lin", "booking", "approve", *ids)
    assert both.output.count("is approved.") == 2
    assert run("lin", "booking", "approve", *ids).exit_code == 1


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["--at", "2026-11-23T09:00:00", "--for", "1h"], 2, "names no time zone"),
        (["--at", "0500-01-01T09:00:00Z", "--for", "1h"], 2, "outside of the years"),
        (["--at", "2026-11-23 9:00", "--for", "0m"], 2, "no time at all"),
        (["--at", "2026-11-23 9:00", "--until", "2026-11-23 8:00"], 2, "lies before the start"),
        (["--at", "2026-11-23 9:00", "--until", "2026-11-23 9:00"], 2, "or is the start"),
        (["--at", "2026-11-23 9:00", "--note", "x" * 10_000], 1, "4000"),
        (["--at", "2026-11-23 9:00", "--participant", "a\r\nb"], 1, "nobody is called"),
        (["--at", "2026-11-23 9:00", "--repeat", "daily"], 2, "--until DAY or --times N"),
        (["--at", "2026-11-23 9:00", "--repeat", "daily", "--until", "soon"], 1, "2030-03-31"),
        (["--at", "2026-11-23 9:00", "--repeat", "daily", "--times", "2", "--days", "someday"], 1, "repeat.days"),
        (["--at", "2026-11-23 9:00", "--maintenance"], 2, "Name a model, or --exclusive, or --maintenance"),
    ],
)
def test_what_people_get_wrong(run: Run, args: list[str], status: int, says: str) -> None:
    answer = run("tomas", "book", "Qwen3-32B-Q4_K_M", "--channel", "gpu-b01/g0", *args)
    assert answer.exit_code == status, answer.output
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr


def test_maintenance_of_a_node_is_shown_before_it_begins(world: Scene, run: Run) -> None:
    shown = run("lin", "node", "drain", "gpu-a01", "--until", "+30d", "--preview")
    assert shown.exit_code == 0, shown.output
    assert "finishes at" in shown.output
    assert run("lin", "node", "drain", "gpu-a01", "--until", "+2h", input="n\n").exit_code == 1
    assert not json.loads(run("lin", "nodes", "--json").output)["items"][0]["cordoned"]
    done = run("lin", "node", "drain", "gpu-a01", "--until", "+2h", "--reason", "a new driver", "--yes")
    assert done.exit_code == 0, done.output
    assert "gpu-a01 is in maintenance until" in done.output
    nodes = run("maya", "nodes").output
    assert "online, draining" in nodes
    assert "gpu-a01: in maintenance until" in nodes
    assert run("lin", "node", "uncordon", "gpu-a01").exit_code == 0


def test_a_booking_whose_node_was_removed_is_shown_all_the_same(world: Scene, run: Run) -> None:
    made = json.loads(run("lin", "book", "--json", "Qwen3-32B-Q4_K_M", "--at", "+30h", "--for", "1h").output)
    with world.store.write() as db:
        for node in db.scalars(select(Node)):
            node.removed_at = world.now
    shown = run("lin", "booking", "show", made["id"])
    assert shown.exit_code == 0, shown.output
    assert "the node of this channel was removed" in " ".join(shown.output.split())
    assert "curl" not in shown.output


def test_a_list_that_is_empty_says_whose_it_is(run: Run) -> None:
    assert "No bookings of yours (--all: everybody's)" in run("lin", "bookings", "--status", "rejected").output
    assert "of yours" not in run("lin", "bookings", "--all", "--status", "rejected").output
