"""Alerts and dashboard: they ask for figures that exist, and each alert comes when it is to, and not before."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.parts import ROOT, cannot_be_had

FILES = ROOT / "ansible/roles/slotserve_controller/files"
RULES = FILES / "slotserve.rules.yml"


def figures() -> set[str]:
    """The names that controller and gateways give their figures."""
    text = "".join(
        (ROOT / p).read_text() for p in ("controller/health.py", "agent/figures.py", "agent/gateway/metrics.py")
    )
    found = set(re.findall(r"slotserve_[a-z_]+", text))
    found |= {f"slotserve_gateway_{n}" for n in re.findall(r'_family\("([a-z_]+)"', text)}
    return found | {f"{n}_total" for n in found} | {f"{n}_bucket" for n in found}


def test_alerts_and_dashboard_ask_for_figures_that_exist() -> None:
    rules = yaml.safe_load(RULES.read_text())
    dashboard = json.loads((FILES / "slotserve-dashboard.json").read_text())
    asked = [r["expr"] for g in rules["groups"] for r in g["rules"]]
    asked += [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
    names = {n for expression in asked for n in re.findall(r"slotserve_[a-z_]+", expression)}
    assert names <= figures()
    assert len(names) > 12
    for rule in (r for g in rules["groups"] for r in g["rules"]):
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")


# Alert: what is measured once a minute (promtool's notation), minutes until it comes, its labels, words of its summary.
CHANNEL = 'slotserve_channel_phase{job="slotserve-controller", channel="n/main", phase="%s", instance="c:8700"}'
LATE = 'slotserve_planner_lateness_seconds_bucket{le="%s", instance="c"}'
ALERTS: dict[str, tuple[dict[str, str], int, dict[str, str], str]] = {
    "SlotServeControllerDown": ({'up{job="slotserve-controller", instance="c:8700"}': "0x40"}, 2,
                                {"job": "slotserve-controller", "instance": "c:8700"},
                                "The SlotServe controller does not answer"),
    "SlotServeNoLeader": ({'slotserve_leader{instance="a"}': "0x40", 'slotserve_leader{instance="b"}': "0x40"}, 1, {},
                          "No controller plans, or more than one says that it does"),
    "SlotServeDatabaseDown": ({'slotserve_database_up{instance="c"}': "0x40"}, 1, {"instance": "c"},
                              "The database does not answer the controller"),
    "SlotServePlannerStuck": ({'slotserve_planner_last_look_seconds{instance="c"}': "90x40"}, 1, {"instance": "c"},
                              "The planner has not looked at the channels for 1m 30s"),
    "SlotServePlannerLate": ({LATE % "5.0": "0x40", LATE % "10.0": "0+1x40", LATE % "+Inf": "0+1x40"}, 6, {},
                             "Bookings begin late by 9.95s"),
    "SlotServeNodeOffline": ({'slotserve_node_online{node="n", instance="a"}': "0x40",
                              'slotserve_node_online{node="n", instance="b"}': "0x40"}, 5, {"node": "n"},
                             "Node n is not connected"),
    "SlotServePlanRefused": ({'slotserve_node_plan_refused{node="n", instance="a"}': "1x40"}, 5, {"node": "n"},
                             "Node n refuses its plan"),
    "SlotServeNodeClock": ({'slotserve_node_clock_skew_seconds{node="n", instance="a"}': "-60x40"}, 5, {"node": "n"},
                           "The clock of node n is wrong by 1m 0s"),
    "SlotServeGatewayDown": ({'up{job="slotserve-gateway", instance="n:8710"}': "0x40"}, 2,
                             {"job": "slotserve-gateway", "instance": "n:8710"}, "The gateway of n:8710 does not answer"),
    "SlotServeChannelFailing": ({'slotserve_channel_failures{channel="n/main", instance="a"}': "3x40"}, 1,
                                {"channel": "n/main"}, "n/main: the model has failed to load 3 times"),
    "SlotServeChannelStuck": ({CHANNEL % "loading": "1x40"}, 30, {"channel": "n/main", "phase": "loading"},
                              "n/main has been loading for half an hour"),
    "SlotServeChannelBlocked": ({CHANNEL % "blocked": "1x40"}, 10, {"channel": "n/main"},
                                "n/main: its GPUs are held by somebody else's process"),
    "SlotServeEngineErrors": ({'slotserve_gateway_requests_total{instance="n:8710", channel="main", status="502"}': "0+60x40"}, 6,
                              {"instance": "n:8710", "channel": "main"},
                              "n:8710 main: the engine leaves requests without an answer"),
    "SlotServeMessagesWait": ({'slotserve_messages_oldest_seconds{instance="c"}': "4000x40"}, 5, {"instance": "c"},
                              "Messages have waited for 1h 6m 40s; look at the mail server or the webhooks"),
}  # fmt: skip
# Nothing of this is worth an alert.
QUIET = {
    'up{job="slotserve-controller", instance="c:8700"}': "1x40",
    'up{job="slotserve-gateway", instance="n:8710"}': "1x40",
    'slotserve_leader{instance="a"}': "1x40",
    'slotserve_leader{instance="b"}': "0x40",
    'slotserve_database_up{instance="c"}': "1x40",
    'slotserve_planner_last_look_seconds{instance="c"}': "3x40",
    LATE % "0.2": "0+1x40",
    LATE % "+Inf": "0+1x40",
    'slotserve_node_online{node="n", instance="a"}': "1x40",
    'slotserve_node_online{node="n", instance="b"}': "0x40",
    'slotserve_node_plan_refused{node="n", instance="a"}': "0x40",
    'slotserve_node_clock_skew_seconds{node="n", instance="a"}': "-1x40",
    'slotserve_channel_failures{channel="n/main", instance="a"}': "2x40",
    CHANNEL % "ready": "1x40",
    CHANNEL % "loading": "0x40",
    'slotserve_gateway_requests_total{instance="n:8710", channel="main", status="200"}': "0+600x40",
    'slotserve_messages_oldest_seconds{instance="c"}': "60x40",
}


def case(name: str, series: dict[str, str], *expected: dict[str, Any]) -> dict[str, Any]:
    given = [{"series": k, "values": v} for k, v in series.items()]
    return {"name": name, "interval": "1m", "input_series": given, "alert_rule_test": list(expected)}


def test_each_alert_comes_when_it_is_to_and_not_before(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        cannot_be_had("promtool", "not installed (Debian: prometheus)")
        return
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = {r["alert"]: r for g in groups for r in g["rules"]}
    assert set(ALERTS) == set(rules)
    cases = []
    for name, (series, minutes, labels, summary) in ALERTS.items():
        said = {"exp_labels": {**labels, **rules[name]["labels"]}, "exp_annotations": {"summary": summary}}
        if described := rules[name]["annotations"].get("description"):
            said["exp_annotations"]["description"] = described.replace(
                "{{ $labels.instance }}", labels.get("instance", "")
            )
        cases.append(
            case(
                name,
                series,
                {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": [said]},
                {"eval_time": f"{minutes - 1}m", "alertname": name, "exp_alerts": []},
            )
        )
    cases.append(case("quiet", QUIET, *({"eval_time": "35m", "alertname": n, "exp_alerts": []} for n in rules)))
    told = tmp_path / "tests.yml"
    told.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": cases}))
    done = subprocess.run([promtool, "test", "rules", told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
