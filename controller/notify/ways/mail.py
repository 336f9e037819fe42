"""E-mail by SMTP: plain text and simple HTML of the same message, over one connection for a batch.

Headers are made by the standard library's policy, which refuses line breaks; what people have typed is one line before
that. A reply of the server to one message (5xx: refused, 4xx: later) is apart from one that concerns them all
(connection, TLS, log-in, sender).
"""

from __future__ import annotations

import smtplib
import ssl
from datetime import UTC, datetime
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from functools import cache
from types import TracebackType

from jinja2 import Environment, PackageLoader, Template, select_autoescape

from controller.notify import labels
from controller.notify.language import translated
from controller.notify.ways.message import Message, NotDelivered, Refused, TryAgain
from controller.notify.ways.text import footer, plain
from controller.notify.wording import one_line
from controller.settings import Settings

PORTS = {"starttls": 587, "tls": 465, "none": 25}
TIMEOUT_SECONDS = 15.0
_SEVEN_BITS = SMTP.clone(cte_type="7bit")  # every server passes it on


class Mailer:
    """A connection, made when the first mail is sent: `with Mailer(settings) as mailer: mailer.send(mail)`.

    `timeout` is for each answer of the server; `broken`: the last failure concerns every mail, not the one alone."""

    def __init__(self, settings: Settings, timeout: float = TIMEOUT_SECONDS) -> None:
        self._settings, self._timeout = settings, timeout
        self.broken = False
        self._smtp: smtplib.SMTP | None = None

    def __enter__(self) -> Mailer:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self._close()

    def send(self, mail: EmailMessage) -> None:
        """Raises Refused or TryAgain with the server's words."""
        self.broken = False
        try:
            if self._smtp is None:
                self._smtp = self._connect()
            self._smtp.send_message(mail)
        except (OSError, smtplib.SMTPException) as err:  # SMTPException is an OSError, and TLS' errors are
            self._close()
            raise self._verdict(err, str(mail["To"])) from None

    def _verdict(self, err: OSError, to: str) -> NotDelivered:
        """What a failure means for the message, in words."""
        chosen = self._settings
        if isinstance(err, smtplib.SMTPRecipientsRefused):
            code, words = next(iter(err.recipients.values()))
            return _of_reply(f"{one_line(to, 100)} is not accepted", code, words)
        if isinstance(err, smtplib.SMTPDataError):
            return _of_reply("the message is not accepted", err.smtp_code, err.smtp_error)
        if isinstance(err, smtplib.SMTPNotSupportedError) and "SMTPUTF8" in str(err):
            return Refused(f"{self._where} takes no addresses with characters beyond ASCII")
        self.broken = True
        if isinstance(err, smtplib.SMTPSenderRefused):
            return TryAgain(f"the sender {err.sender} is not accepted (SLOTSERVE_SMTP_FROM): {_said(err)}")
        if isinstance(err, smtplib.SMTPAuthenticationError):
            return TryAgain(f"log-in refused (SLOTSERVE_SMTP_USERNAME, _PASSWORD): {_said(err)}")
        if isinstance(err, smtplib.SMTPNotSupportedError):
            lacks = "STARTTLS" if chosen.smtp_security == "starttls" and "STARTTLS" in str(err) else "log-in"
            return TryAgain(f"{self._where} has no {lacks} (SLOTSERVE_SMTP_SECURITY, _USERNAME)")
        if isinstance(err, ssl.SSLError):
            why = getattr(err, "verify_message", "") or err.reason or str(err)
            return TryAgain(f"{self._where}: TLS: {one_line(why, 200)} (SLOTSERVE_SMTP_SECURITY, _CA_FILE)")
        if isinstance(err, smtplib.SMTPResponseException):
            return TryAgain(f"{self._where}: {_said(err)}")
        return TryAgain(f"{self._where}: {one_line(err.strerror or str(err) or type(err).__name__, 200)}")

    @property
    def _where(self) -> str:
        return f"{self._settings.smtp_host}:{port(self._settings)}"

    def _connect(self) -> smtplib.SMTP:
        chosen = self._settings
        name = domain(chosen)
        made: smtplib.SMTP
        if chosen.smtp_security == "tls":
            made = smtplib.SMTP_SSL(
                chosen.smtp_host, port(chosen), local_hostname=name, timeout=self._timeout, context=_tls(chosen)
            )
        else:
            made = smtplib.SMTP(chosen.smtp_host, port(chosen), local_hostname=name, timeout=self._timeout)
        try:
            if chosen.smtp_security == "starttls":
                made.starttls(context=_tls(chosen))
            if chosen.smtp_username:
                made.login(chosen.smtp_username, chosen.smtp_password)
        except BaseException:  # whatever ended it, the connection is not left open
            made.close()
            raise
        return made

    def _close(self) -> None:
        smtp, self._smtp = self._smtp, None
        if smtp is not None:
            try:
                smtp.quit()
            except (OSError, smtplib.SMTPException):
                smtp.close()


def build(settings: Settings, message: Message, name: str, address: str, now: int) -> EmailMessage:
    """The mail. Raises Refused where the address is none."""
    mail = EmailMessage(policy=_SEVEN_BITS)
    sender = parseaddr(settings.smtp_from)
    try:
        mail["To"] = Address(display_name=one_line(name, 100), addr_spec=address)
        mail["From"] = Address(display_name=sender[0], addr_spec=sender[1])
    except (HeaderParseError, ValueError, IndexError) as err:
        raise Refused(f"{one_line(address, 100)} is no e-mail address: {one_line(err, 200)}") from None
    mail["Subject"] = one_line(message.said.title, 250)
    mail["Date"] = format_datetime(datetime.fromtimestamp(now / 1000, UTC))
    mail["Message-ID"] = f"<{message.id}@{domain(settings)}>"
    if thread := str(message.facts.get("reservation_id") or ""):
        mail["References"] = f"<booking-{thread}@{domain(settings)}>"  # one conversation a booking
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-SlotServe-Kind"] = message.kind
    mail.set_content("\n\n".join(b for b in (plain(message), footer(message)) if b) + "\n")
    mail.add_alternative(html(message), subtype="html")
    return mail


def html(message: Message) -> str:
    """The same for programs that show HTML: everything escaped, nothing fetched."""
    return _page().render(
        said=message.said,
        url=message.url,
        settings_url=message.settings_url,
        language=message.language.replace("_", "-"),
        open=translated(labels.OPEN, message.language),
        footer=translated(labels.FOOTER, message.language),
    )


def port(settings: Settings) -> int:
    return settings.smtp_port or PORTS[settings.smtp_security]


def domain(settings: Settings) -> str:
    """The sender's, which ids of messages end in."""
    return parseaddr(settings.smtp_from)[1].rpartition("@")[2] or "localhost"


def _tls(settings: Settings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=settings.smtp_ca_file or None)


def _of_reply(what: str, code: int, words: bytes | str) -> NotDelivered:
    kind: type[NotDelivered] = Refused if code >= 500 else TryAgain
    return kind(f"{what}: {code} {_text(words)}")


def _said(err: smtplib.SMTPResponseException) -> str:
    return f"{err.smtp_code} {_text(err.smtp_error)}"


def _text(words: bytes | str) -> str:
    return one_line(words.decode(errors="replace") if isinstance(words, bytes) else words, 300)


@cache
def _page() -> Template:
    env = Environment(loader=PackageLoader("controller.notify"), autoescape=select_autoescape(), trim_blocks=True)
    return env.get_template("mail.html")
