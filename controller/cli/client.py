"""A thin client of the REST API: one call a method, every failure a sentence that says what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import click
import httpx

Answer = Any


class Refused(click.ClickException):
    """The controller (or this machine) said no; the message says why. `code` is the API's, `status` the HTTP one."""

    exit_code = 1

    def __init__(self, message: str, status: int = 0, code: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.status, self.code, self.details = status, code, details


class Words(Protocol):
    """How a person reads times (the App)."""

    def told(self, text: Any) -> str: ...

    def window(self, starts_at: str, ends_at: str) -> str: ...


class Client:
    """`url` is the console's address, with or without /api/v1. Close it, or use it as a context manager."""

    def __init__(
        self,
        url: str,
        key: str,
        transport: httpx.BaseTransport | None = None,
        timeout: float = 30,
        words: Words | None = None,
    ) -> None:
        """`words` shows the times of a refusal to the person."""
        self._words = words
        self.url = url.rstrip("/").removesuffix("/api/v1")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Refused(f"SLOTSERVE_URL: {url!r} is not an address; write http://host:8700")
        self.key = key
        self._http = httpx.Client(
            base_url=self.url + "/api/v1",
            headers={"Authorization": f"Bearer {key}", "Accept": "application/json"} if key else {},
            timeout=timeout,
            transport=transport,
            trust_env=parts.hostname not in ("127.0.0.1", "localhost", "::1"),  # a proxy is not for this machine
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Answer:
        return self._call("GET", path, params=_clean(params))

    def text(self, path: str, **params: Any) -> str:
        """An answer that is no JSON."""
        return str(self._call("GET", path, params=_clean(params)))

    def post(self, path: str, body: Any = None, **params: Any) -> Answer:
        return self._call("POST", path, json=body if body is not None else {}, params=_clean(params))

    def put(self, path: str, body: Any) -> Answer:
        return self._call("PUT", path, json=body)

    def patch(self, path: str, body: Any) -> Answer:
        return self._call("PATCH", path, json=body)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self._call("DELETE", path, **({"json": body} if body is not None else {}))

    def items(self, path: str, most: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page; `most` ends it early."""
        cursor, sent = None, 0
        while True:
            page = self.get(path, limit=min(most - sent, 1000) if most else 1000, cursor=cursor, **params)
            for item in page["items"]:
                yield item
                sent += 1
                if most and sent >= most:
                    return
            cursor = page.get("next")
            if not cursor:
                return

    def ready(self) -> dict[str, Any]:
        """{problems[], warnings[]} of /readyz, whatever its status."""
        try:
            said = self._http.get("readyz").json()
            return {"problems": list(said.get("problems") or []), "warnings": list(said.get("warnings") or [])}
        except (httpx.HTTPError, ValueError, AttributeError):  # the call that follows says it better
            return {"problems": [], "warnings": []}

    def _call(self, method: str, path: str, **how: Any) -> Answer:
        try:
            answer = self._http.request(method, path.lstrip("/"), **how)
        except httpx.TimeoutException:
            raise Refused(f"no answer from {self.url} in time; look at its log, or try again") from None
        except httpx.HTTPError as err:
            raise Refused(
                f"cannot reach {self.url} ({err}); is the controller up, and is SLOTSERVE_URL right?"
            ) from None
        if answer.is_success:
            if not answer.headers.get("Content-Type", "").startswith("application/json"):
                return answer.text if answer.content else {}
            return answer.json() if answer.content else {}
        raise _refusal(answer, self.url, self._words)


def path_of(*parts: str) -> str:
    """A path below /api/v1 from names that may hold anything: channel_path("channels", "local/a") keeps its slash."""
    return "/" + "/".join(quote(p, safe="/") for p in parts)


def _clean(params: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in params.items() if v is not None}


def _refusal(answer: httpx.Response, url: str, words: Words | None) -> Refused:
    try:
        whole = answer.json()
        error = whole["error"]
        message, code, details = str(error["message"]), str(error.get("code", "")), error.get("details")
    except (ValueError, KeyError, TypeError):
        return Refused(
            f"{url} answered {answer.status_code}, not as SlotServe does; is SLOTSERVE_URL right?", answer.status_code
        )
    if answer.status_code == 401:
        message += " (slotserve login, or set SLOTSERVE_API_KEY)"
    message += next((f" ({hint})" for start, hint in LISTED.items() if message.startswith(start)), "")
    lines = [words.told(message), *ways_out(whole, words)] if words else [message]
    return Refused("\n".join(lines), answer.status_code, code, details)


# What does not exist -> what lists what does.
LISTED = {
    **{f"{field}there is no channel": "slotserve channels lists them" for field in ("", "channel: ")},
    **{f"{field}there is no model": "slotserve models lists them" for field in ("", "model: ")},
    **{f"{field}there is no preset": "slotserve presets lists them" for field in ("", "preset: ")},
    "there is no booking": "slotserve bookings lists yours, with --all everybody's",
    "there is no node": "slotserve nodes lists them",
    "there is nobody": "slotserve users lists them",
    "user: there is nobody": "slotserve users lists them",
    "holder: there is nobody": "slotserve users lists them",
    "there is no target": "slotserve notifications targets lists them",
}


def ways_out(body: dict[str, Any], words: Words) -> list[str]:
    """Problems, what is in the way, and the nearest free times with the options that take them, a line each."""
    message = str((body.get("error") or {}).get("message", ""))
    problems = [str(p.get("message") if isinstance(p, dict) else p) for p in body.get("problems") or []]
    lines = [words.told(f"  - {text}") for text in problems if message and text not in message]
    lines += [
        f"  taken  {words.window(t['starts_at'], t['ends_at'])} by {t.get('holder') or 'somebody'} ({t.get('status')})"
        for t in body.get("conflicts") or []
    ]
    for free in (body.get("suggestions") or [])[:3]:
        why = words.told(free.get("why") or "free")
        lines.append(f"  free   {free['channel']} {words.window(free['starts_at'], free['ends_at'])}, {why}")
        lines.append(f"         --channel {free['channel']} --at {free['starts_at']}")
    return lines
