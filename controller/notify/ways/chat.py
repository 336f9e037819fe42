"""Chat services (DingTalk, Feishu and Lark, WeCom, Slack …) by apprise, which is an extra of its own.

A target is one of apprise's URLs. People's own targets go to services whose address is fixed by the service, unless the
setting allows more; an administrator may name any service that sends over the network. What would act on this machine
(the desktop, the system's log) is nobody's.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

from controller.notify.ways.message import Message, Refused, TryAgain
from controller.notify.ways.text import plain
from controller.notify.wording import one_line
from controller.said import say

MISSING = "chat services need apprise on the controller: pip install 'slotserve[chat]'"
# Their address is the service's own: an own target cannot be turned at this network.
FIXED = frozenset(("dingtalk", "feishu", "lark", "wecombot", "slack", "discord", "tgram", "gchat", "wxteams", "pover"))
LOCAL = frozenset(("dbus", "kde", "glib", "gnome", "macosx", "windows", "syslog", "qt"))
# Addresses as the services themselves show them, which apprise does not read.
PASTED = (
    (re.compile(r"https://oapi\.dingtalk\.com/robot/send\?access_token=(\w+)"), r"dingtalk://\1/"),
    (re.compile(r"https://open\.feishu\.cn/open-apis/bot/v2/hook/([\w-]+)/?"), r"feishu://\1/"),
)
# How the services call themselves; by scheme, or by the host of the address that they show.
NAMES = {
    "dingtalk": "DingTalk", "feishu": "Feishu", "open.feishu.cn": "Feishu", "lark": "Lark", "open.larksuite.com": "Lark",
    "wecombot": "WeCom", "qyapi.weixin.qq.com": "WeCom", "slack": "Slack", "hooks.slack.com": "Slack",
    "discord": "Discord", "discord.com": "Discord", "tgram": "Telegram", "gchat": "Google Chat", "wxteams": "Webex",
    "pover": "Pushover", "mmost": "Mattermost", "mmosts": "Mattermost", "msteams": "Microsoft Teams",
}  # fmt: skip
CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0
# Apprise writes addresses into its log whole, with the secrets in them: nothing of it goes into ours. What it says of a
# failure is taken from it (LogCapture) and told in the refusal.
logging.getLogger("apprise").propagate = False
logging.getLogger("apprise").addHandler(logging.NullHandler())
_one = threading.Lock()  # what apprise says of a failure is in its log: one at a time, or it would be somebody else's


def available() -> str:
    """Why chat services cannot be used here; empty: they can."""
    try:
        import apprise  # noqa: F401
    except ImportError:
        return MISSING
    return ""


def check(url: str, private: bool) -> str:
    """The name of the service that a URL is for. `private`: any host may be named. Raises Refused in words."""
    service = _service(url)
    schemes = _schemes(service)
    if schemes & LOCAL or not service.service_name:
        raise Refused(say("this acts on the controller's own machine; name a service on the network"))
    if not private and not schemes & FIXED:
        scheme = url.partition("://")[0]
        raise Refused(
            say(
                "%(scheme)s:// names a host of its own; only administrators may add it (or everybody, with "
                "SLOTSERVE_NOTIFY_PRIVATE_TARGETS=1)",
                scheme=scheme,
            )
        )
    return str(service.service_name)


def send(url: str, message: Message, private: bool) -> None:
    """Raises Refused or TryAgain."""
    if why := available():
        raise TryAgain(why)
    check(url, private)
    service = _service(url)
    service.socket_connect_timeout, service.socket_read_timeout = CONNECT_SECONDS, READ_SECONDS
    import apprise

    with _one, apprise.LogCapture(level=logging.WARNING) as said:
        good = service.notify(
            title=harmless(message.said.title),
            body=harmless(plain(message)),
            body_format=apprise.NotifyFormat.TEXT,
        )
        words = said.getvalue()
    if not good:
        raise TryAgain(_last(words) or "the service did not take it")


def service_name(url: str) -> str:
    """The name of a target's service, without asking apprise."""
    scheme, _, rest = understood(url).partition("://")
    return NAMES.get(scheme.lower()) or NAMES.get(rest.partition("/")[0].lower()) or scheme


def masked(url: str) -> str:
    """The URL without what opens it."""
    return f"{url.partition('://')[0]}://…"


def harmless(text: str) -> str:
    """What people have typed calls nobody: no @all, <!channel> or <at> survives."""
    return text.replace("@", "@\u200b").replace("<", "<\u200b")


def understood(url: str) -> str:
    """The URL as apprise reads it: an address copied from the service's own page counts as well."""
    for shape, made in PASTED:
        if found := shape.fullmatch(url.strip()):
            return found.expand(made)
    return url.strip()


def _schemes(service: Any) -> set[str]:
    found: set[str] = set()
    for said in (service.protocol, service.secure_protocol):
        found.update((said,) if isinstance(said, str) else said or ())
    return found


def _service(url: str) -> Any:
    if why := available():
        raise Refused(why)
    import apprise

    if "://" not in url or any(c.isspace() or not c.isprintable() for c in url.strip()):
        raise Refused(say("this is no address of a chat service; write it as dingtalk://…, feishu://…, slack://…"))
    with _one, apprise.LogCapture(level=logging.WARNING):
        found = apprise.Apprise.instantiate(understood(url), asset=_asset(), suppress_exceptions=True)
    if found is None:
        raise Refused(
            say(
                "%(scheme)s://… is not understood; the shapes of the addresses are in apprise's documentation",
                scheme=one_line(url.partition("://")[0], 30),
            )
        )
    return found


def _asset() -> Any:
    import apprise

    return apprise.AppriseAsset(app_id="SlotServe", app_desc="SlotServe", app_url="", async_mode=False)


def _last(words: str) -> str:
    """The last line of apprise's log, without its time and level."""
    lines = [line for line in words.splitlines() if line.strip()]
    return one_line(lines[-1].rpartition(" - ")[2] if lines else "", 300)
