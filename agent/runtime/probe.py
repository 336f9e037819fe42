"""One look at an engine: is it ready, and is it ours?

/health alone proves little (another engine may hold the address, a router answers 200 without a model), so the name that
only this start has must be among /v1/models. An engine that takes a single name is known by its key: it must take ours
and refuse another.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx

from agent.interfaces import Process

log = logging.getLogger(__name__)
TIMEOUT = 2.0


class Prober:
    """Keeps one client for one engine."""

    def __init__(self, process: Process) -> None:
        self._process = process
        # Plain HTTP: the loop does not stand still for 30 ms while the machine's certificate authorities are read.
        transport = httpx.AsyncHTTPTransport(uds=process.socket or None, verify=False)
        host = f"[{process.host}]" if ":" in process.host else process.host
        self._client = httpx.AsyncClient(
            transport=transport,
            base_url="http://engine" if process.socket else f"http://{host}:{process.port}",
            timeout=TIMEOUT,
            trust_env=False,
        )

    @property
    def launch_id(self) -> str:
        return self._process.launch_id

    async def look(self) -> bool:
        """True once it answers as ours; False for anything else. 2 s at most."""
        try:
            async with asyncio.timeout(TIMEOUT):
                health = await self._client.get("/health")
                return health.status_code == 200 and await self._ours()
        except (httpx.HTTPError, TimeoutError, ValueError) as err:
            log.debug("engine does not answer launch=%s error=%s", self._process.launch_id, err)
            return False

    async def close(self) -> None:
        await self._client.aclose()

    async def _ours(self) -> bool:
        answer = await self._client.get("/v1/models", headers=_key(self._process.engine_key))
        if answer.status_code != 200:
            return False
        names = served_names(answer.json())
        if self._process.unique_name:
            if self._process.unique_name not in names:
                log.warning("another engine answers launch=%s names=%s", self._process.launch_id, sorted(names))
                return False
            return True
        other = await self._client.get("/v1/models", headers=_key("not-" + self._process.engine_key))
        return self._process.served_name in names and other.status_code == 401


def served_names(models: Any) -> set[str]:
    """Every name an OpenAI model list shows, aliases too; total for any JSON."""
    names: set[str] = set()
    entries = models.get("data") if isinstance(models, dict) else None
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            aliases = entry.get("aliases")
            names |= {str(n) for n in (entry.get("id"), *(aliases if isinstance(aliases, list) else ())) if n}
    return names


def _key(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
