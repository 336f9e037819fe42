"""Webhooks: the message as JSON, signed, to an address that somebody named.

Nothing is followed and nothing is guessed: redirects count as a refusal, and where the target is a person's own, each
address that its name stands for must be a public one; the one that was looked at is the one that is dialled, so that a
name cannot change in between. Whoever receives it computes HMAC-SHA256 over "timestamp.body" with the target's secret.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import socket
from importlib.metadata import version
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx

from controller.notify.ways.message import Message, Refused, TryAgain
from controller.notify.wording import one_line
from controller.said import say
from controller.times import text_of

TIMEOUT = httpx.Timeout(10.0, connect=5.0)
MORE = (408, 409, 421, 423, 425, 429)  # a later try may do better
FACTS = (
    "reservation_id",
    "channel",
    "node",
    "model",
    "preset",
    "holder",
    "by",
    "reason",
    "category",
    "default",
    "processes",
    "others",
)
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
INSTANTS = ("starts_at", "ends_at", "since")  # fmt: skip


def post(url: str, secret: str, message: Message, now: int, private: bool) -> None:
    """Sends it. `private`: the target may lie inside the network. Raises Refused or TryAgain."""
    parts = checked(url)
    where, host = _dialled(parts, private), parts.netloc.rpartition("@")[2]
    body = json.dumps(payload(message), ensure_ascii=False).encode()
    stamp = str(now // 1000)
    headers = {
        "Host": host,
        "Content-Type": "application/json",
        "User-Agent": f"SlotServe/{version('slotserve')}",
        "X-SlotServe-Event": message.kind,
        "X-SlotServe-Delivery": message.id,
        "X-SlotServe-Timestamp": stamp,
        "X-SlotServe-Signature": f"sha256={signature(secret, stamp, body)}",
    }
    try:
        with httpx.Client(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client:
            extensions = {"sni_hostname": parts.hostname} if parts.scheme == "https" else {}
            with client.stream("POST", where, content=body, headers=headers, extensions=extensions) as answer:
                status = answer.status_code  # what it says besides is nothing to us, however long it is
    except httpx.TimeoutException:
        raise TryAgain(f"{host}: no answer within {TIMEOUT.read:g} s") from None
    except httpx.HTTPError as err:
        raise TryAgain(f"{host}: {one_line(err or type(err).__name__, 200)}") from None
    if 300 <= status < 400:
        raise Refused(f"{host}: it answers {status}; redirects are not followed, name the address that they lead to")
    if status >= 500 or status in MORE:
        raise TryAgain(f"{host}: it answers {status}")
    if status >= 400:
        raise Refused(f"{host}: it answers {status}")


def payload(message: Message) -> dict[str, Any]:
    """The body: the message in words, and its facts by name."""
    facts = message.facts
    return {
        "id": message.id,
        "event_id": message.event_id,
        "kind": message.kind,
        "at": text_of(message.at),
        "title": message.said.title,
        "text": " ".join([message.said.lead, *message.said.advice]),
        "rows": [{"label": label, "value": value} for label, value in message.said.rows],
        "language": message.language,
        "url": message.url or None,
        "subject": message.subject,
        **{name: facts.get(name) for name in FACTS if facts.get(name) not in (None, "", [])},
        **{name: text_of(facts[name]) for name in INSTANTS if isinstance(facts.get(name), int)},
    }


def signature(secret: str, stamp: str, body: bytes) -> str:
    """Hexadecimal HMAC-SHA256 of `timestamp.body`."""
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def checked(url: str) -> SplitResult:
    """The address in parts. Raises Refused in words."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Refused(say("this is no web address; write https://host/path")) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise Refused(say("this is no web address; write https://host/path"))
    if parts.username or parts.password:
        raise Refused(say("user names and passwords in the address are not sent; the signature says who sends"))
    return parts


def public(host: str, port: int) -> list[str]:
    """The addresses of a host, all of them public. Raises Refused, or TryAgain where the name is not known."""
    found = addresses(host, port)
    for address in found:
        if _inside(ipaddress.ip_address(address.partition("%")[0])):
            raise Refused(
                say(
                    "%(host)s is %(address)s, inside this network; only administrators' targets may be there "
                    "(SLOTSERVE_NOTIFY_PRIVATE_TARGETS=1 allows it to everybody)",
                    host=host,
                    address=str(address),
                )
            )
    return found


def _inside(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is none of the public ones, also where an IPv6 one only carries an IPv4 one."""
    if isinstance(ip, ipaddress.IPv6Address):
        carried = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
        if ip in NAT64:
            carried.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
        if any(v4 is not None and _inside(v4) for v4 in carried):
            return True
    return not ip.is_global or ip.is_multicast


def addresses(host: str, port: int) -> list[str]:
    """What a name stands for. Raises TryAgain."""
    try:
        return list(dict.fromkeys(str(i[4][0]) for i in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
    except (OSError, UnicodeError) as err:
        raise TryAgain(f"{host} is not known: {one_line(getattr(err, 'strerror', None) or err, 100)}") from None


def _dialled(parts: SplitResult, private: bool) -> str:
    """The URL with the address in the name's place."""
    if private:
        return parts.geturl()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = public(parts.hostname or "", port)[0]
    literal = f"[{address}]" if ":" in address else address
    return parts._replace(netloc=f"{literal}:{port}").geturl()
