"""What the lab's inventories say: the one of the story, and those of the variants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.hosts.engine import PROGRAM
from tests.hosts.fleet import Fleet
from tests.hosts.lab import NET, Lab

INSIDE = f"{NET}.0/25"  # who may reach SlotServe's ports
CHANNEL = {"name": "main", "gpus": [], "model_folders": ["/srv/models"], "engines": ["llama.cpp"]}
SHORT = {
    "tick_seconds": 1,
    "switch_buffer_seconds": 1,
    "min_preload_lead_seconds": 2,
    "stop_timeout_seconds": 5,
    "drain_seconds": 5,
    "retry_min_seconds": 1,
    "retry_max_seconds": 4,
    "disk_read_mbps": 5000,
}


def story(fleet: Fleet, archive: Path) -> dict[str, Any]:
    """A controller and two nodes with all that variables can have the roles do: a firewall, figures, relays; one node with
    several gateway processes, the other with a certificate, and figures at an address of their own."""
    settings = {"scan_seconds": 1, "gateway_relay": True}
    h1, h2, h3 = (address(fleet.lab, number) for number in range(3))
    h2 |= {
        "slotserve_agent_settings": {**settings, "gateway_workers": 2},
        "slotserve_agent_write_paths": ["/var/cache/slotserve-engines"],
    }
    h3 |= {
        "slotserve_agent_gateway_tls_certificate": str(fleet.certificate),
        "slotserve_agent_gateway_tls_key": str(fleet.certificate_key),
        "slotserve_agent_metrics_address": "0.0.0.0:8711",
        "slotserve_agent_metrics_sources": [f"{fleet.controller.address}/32"],
        "slotserve_try_validate_certs": False,
    }
    return {
        "slotserve_controller": {
            "hosts": {"h1": h1},
            "vars": {
                "slotserve_controller_console_sources": [INSIDE],
                "slotserve_controller_fleet_sources": [INSIDE],
                "slotserve_controller_prometheus": True,
                "slotserve_controller_prometheus_key_file": "/etc/slotserve/credentials/admin_api_key",
                "slotserve_controller_grafana_dashboards": "/var/lib/grafana/dashboards",
            },
        },
        "slotserve_nodes": {
            "hosts": {"h2": h2, "h3": h3},
            "vars": {
                "slotserve_agent_channels": [CHANNEL],
                "slotserve_agent_settings": settings,
                "slotserve_agent_gateway_sources": [INSIDE],
                "slotserve_agent_relay_port": 8712,
                "slotserve_agent_relay_sources": [INSIDE],
                "slotserve_engine_llamacpp_source": "archive",
                "slotserve_engine_llamacpp_archive": str(archive),
                "slotserve_engine_llamacpp_program": PROGRAM,
            },
        },
        "all": everywhere(fleet.lab, {"slotserve_common_firewall": True}),
    }


def with_postgresql(fleet: Fleet, controllers: int, **variables: Any) -> dict[str, Any]:
    """As many controllers, and the last host as a node with a packaged engine. `variables`: of the controllers."""
    return {
        "slotserve_controller": {
            "hosts": {f"h{n + 1}": address(fleet.lab, n) for n in range(controllers)},
            "vars": variables,
        },
        "slotserve_nodes": {
            "hosts": {"h3": address(fleet.lab, 2)},
            "vars": {
                "slotserve_agent_channels": [CHANNEL],
                "slotserve_agent_settings": {"scan_seconds": 1},
                "slotserve_engine_llamacpp_source": "package",
            },
        },
        "all": everywhere(fleet.lab, {}),
    }


def address(lab: Lab, number: int) -> dict[str, Any]:
    return {"ansible_host": lab.hosts[number].address}


def everywhere(lab: Lab, variables: dict[str, Any]) -> dict[str, Any]:
    return {
        "vars": {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(lab.key),
            "ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null -F /dev/null",
            "ansible_python_interpreter": "/usr/bin/python3",
            "slotserve_common_require_ntp": False,  # containers have their host's clock
            "slotserve_controller_settings": SHORT,
            **variables,
        }
    }
