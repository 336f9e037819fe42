"""What `slotserve demo` looks at while it comes up: who answers already, what is there, what is settled."""

from __future__ import annotations

import httpx

from controller.cli.client import Client
from controller.cli.demo_files import CHANNELS


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def opens(gateway: str, key: str) -> bool:
    try:
        answer = httpx.get(
            gateway + "/v1/models", headers={"Authorization": f"Bearer {key}"}, timeout=5, trust_env=False
        )
        return answer.status_code == 200
    except httpx.HTTPError:
        return False


def online(api: Client) -> bool:
    return any(n["name"] == "local" and n["online"] for n in api.items("/nodes")) and len(
        list(api.items("/channels"))
    ) >= len(CHANNELS)


def models(api: Client, least: int) -> list[str]:
    names = [m["name"] for m in api.items("/models")]
    return names if len(names) >= least else []


def settled(api: Client) -> bool:
    """Every channel runs what it should, or has said why not."""
    return all(c["target"] is None or c["phase"] in ("ready", "retry_wait", "blocked") for c in api.items("/channels"))


def default_of(api: Client) -> str | None:
    model = api.get(f"/channels/local/{CHANNELS[0]}").get("default_model")
    return str(model) if model else None
