"""The controller's settings: environment variables, each also as `<NAME>_FILE`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parseaddr
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

PREFIX = "SLOTSERVE_"
DATABASES = ("sqlite", "sqlite+pysqlite", "postgresql", "postgres", "postgresql+psycopg")


class SettingsError(ValueError):
    """A setting cannot be used; the message names the variable and the remedy."""


class Settings(BaseModel):
    """Field `x_y` is the variable SLOTSERVE_X_Y; descriptions are what `slotserve settings` and `--help` show."""

    model_config = ConfigDict(frozen=True)
    tick_seconds: float = Field(3, gt=0, description="The safety tick of the scheduler; events act at once, without it")
    switch_buffer_seconds: float = Field(60, ge=0, description='The "+ 60 s" of every scheduling rule (BUFFER)')
    min_preload_lead_seconds: float = Field(180, ge=0, description="Default of a channel's minimum preload lead")
    stop_timeout_seconds: float = Field(30, ge=0, description="From SIGTERM to SIGKILL")
    drain_seconds: float = Field(30, ge=0, description="Longest wait for running requests on a switch")
    load_timeout_seconds: float = Field(600, gt=0, description="Process start to ready; a preset may carry its own")
    disk_read_mbps: float = Field(500, gt=0, description="For the first estimate of a load time (MB = 10^6 bytes)")
    retry_min_seconds: float = Field(30, gt=0, description="First interval of the growing retry")
    retry_max_seconds: float = Field(600, gt=0, description="Longest interval of the growing retry")
    gateway_linger_seconds: float = Field(3600, ge=0, description="How long a replaced gateway goes on for its streams")
    show_holders: Literal["users", "everyone", "admins"] = Field("users", description="Who sees holders' names")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe line that is logged"
    )
    log_format: Literal["text", "json"] = Field("text", description="`json` for machines; the same keys everywhere")
    secrets_key: str = Field(
        "",
        repr=False,
        description="What seals others' secrets in the database (_FILE); empty: secrets.key in the state folder",
    )
    public_url: str = Field(
        "",
        description="Where people reach the console (https://slots.example.org); for links, and for signing in by OIDC",
    )
    session_idle_hours: float = Field(
        72, ge=0.25, le=87600, description="A console session without use for so long ends (an open page uses it)"
    )
    session_hours: float = Field(336, ge=0.25, le=87600, description="A console session ends so long after the sign-in")
    oidc_issuer: str = Field(
        "", description="Identity provider (OpenID Connect), its issuer address; empty: passwords only"
    )
    oidc_client_id: str = Field("", validate_default=True, description="The name the provider knows this console by")
    oidc_client_secret: str = Field("", repr=False, description="The console's secret there; empty: a public client")
    oidc_scopes: str = Field("openid profile email", description="What is asked of the provider")
    oidc_end_session: bool = Field(
        True,
        description="Signing out here also ends the provider's session, where it offers that; 0: only the one here",
    )
    oidc_label: str = Field("", description="The provider's name on the button; empty: its host")
    oidc_name_claim: str = Field("preferred_username", description="The claim that names a new account")
    oidc_groups_claim: str = Field("groups", description="The claim with a person's groups (dots lead into objects)")
    oidc_admin_groups: str = Field("", description="Whose members are administrators, with commas between")
    oidc_approver_groups: str = Field("", description="Whose members are approvers, with commas between")
    oidc_allowed_groups: str = Field("", description="Only members of these come in; empty: no such limit")
    oidc_allowed_domains: str = Field(
        "", description="Only verified e-mail addresses of these domains come in; empty: no such limit"
    )
    oidc_trust_email: bool = Field(
        False, description="1 takes the provider's e-mail addresses as verified where it does not say so"
    )
    oidc_link: Literal["email", "never"] = Field(
        "email",
        description="The first sign-in opens the account with the same verified e-mail address, or never one that was there",
    )
    oidc_create: bool = Field(True, description="0: a sign-in that fits no account is refused instead of making one")
    smtp_host: str = Field("", description="Mail server; empty: no e-mail is sent")
    smtp_port: int = Field(0, ge=0, le=65535, description="Its port; 0: 587 for starttls, 465 for tls, 25 for none")
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="How mail is protected on its way"
    )
    smtp_ca_file: str = Field(
        "", description="PEM file of the CA that signed the mail server's certificate, if it is your own"
    )
    smtp_username: str = Field("", description="For logging in at the mail server; empty: without")
    smtp_password: str = Field("", repr=False, description="The password that goes with it; better in a file (_FILE)")
    smtp_from: str = Field("SlotServe <slotserve@localhost>", description="Sender of mails")
    notify_language: Literal["en", "zh_Hans"] = Field(
        "en", description="Language of messages to whoever has not chosen one"
    )
    notify_zone: str = Field("UTC", description="Time zone of messages to whoever has not chosen one")
    notify_starts_soon_minutes: float = Field(
        15, ge=0, le=1440, description='So long before its start a holder is told "starts soon"; 0: never'
    )
    notify_ends_soon_minutes: float = Field(
        10, ge=0, le=1440, description='So long before its end a holder is told "ends soon"; 0: never'
    )
    notify_node_lost_seconds: float = Field(
        60, ge=5, description="So long without contact before people are told that a node is lost"
    )
    notify_private_targets: bool = Field(
        False, description="1 lets everybody's own webhooks and chat services be inside this network"
    )
    notify_attempts: int = Field(
        12, ge=1, le=100, description="Tries before a message is given up (12 take about a day)"
    )
    retain_days_audit: int = Field(400, ge=1, description="Days that audit rows are kept")
    retain_days_usage: int = Field(400, ge=1, description="Days that usage rows are kept")
    retain_days_loads: int = Field(400, ge=1, description="Days that the load history is kept")
    retain_days_states: int = Field(400, ge=1, description="Days that what channels did is kept")
    retain_days_logs: int = Field(400, ge=1, description="Days that engines' logs are kept")
    retain_days_outbox: int = Field(400, ge=1, description="Days that notices are kept")
    state_dir: Path = Field(Path("/var/lib/slotserve"), description="CA, secrets, engine logs and the SQLite file")
    database_url: str = Field(
        "",
        description="postgresql://user:password@host/database, or sqlite:///path; empty: slotserve.db in the state folder",
    )
    http_listen: str = Field("127.0.0.1:8700", description="Console and REST; host:port or unix:/path, loopback only")
    insecure_http: bool = Field(False, description="1 allows a wider http_listen without TLS in front")
    fleet_listen: str = Field("127.0.0.1:8701", description="Fleet gRPC (mutual TLS)")
    enrol_listen: str = Field("127.0.0.1:8702", description="Enrolment (server TLS)")
    fleet_address: str = Field("", description="host:port that nodes dial; empty: as fleet_listen")
    enrol_address: str = Field("", description="host:port in join strings; empty: as enrol_listen")
    fleet_peers: str = Field(
        "", description="Other controllers of this database, host:port each, with commas: nodes dial them as well"
    )
    lease_seconds: float = Field(
        15, ge=1, le=300, description="Length of the leader's lease where several controllers share a PostgreSQL"
    )
    max_booking_hours: float = Field(
        8, ge=0, description="Longest booking unless the channel's policy says otherwise; 0 = no limit"
    )
    max_days_ahead: float = Field(
        30, ge=0, description="How far ahead may be booked unless the policy says otherwise; 0 = no limit"
    )

    @field_validator("public_url")
    @classmethod
    def _plain_address(cls, url: str) -> str:
        if url and not url.startswith(("https://", "http://")):
            raise ValueError("write it with its scheme, such as https://slots.example.org")
        return url.rstrip("/")

    @field_validator("oidc_issuer")
    @classmethod
    def _private_issuer(cls, url: str) -> str:
        host = urlsplit(url).hostname if url else None
        if url and not (url.startswith("https://") or host in ("localhost", "127.0.0.1", "::1")):
            raise ValueError("must begin with https:// (http:// only on this machine)")
        return url

    @field_validator("oidc_client_id")
    @classmethod
    def _with_issuer(cls, client_id: str, info: ValidationInfo) -> str:
        if info.data.get("oidc_issuer") and not client_id:
            raise ValueError("is needed with SLOTSERVE_OIDC_ISSUER: register this console with the provider")
        return client_id

    @field_validator("smtp_from")
    @classmethod
    def _a_sender(cls, sender: str) -> str:
        address = parseaddr(sender)[1]
        local, at, domain = address.rpartition("@")
        if not (local and at and domain) or not sender.isprintable() or not domain.isascii():
            raise ValueError("write Name <address@domain>, or address@domain")
        return sender

    @field_validator("notify_zone")
    @classmethod
    def _a_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"there is no time zone {zone!r}; write it as Asia/Shanghai") from None
        return zone

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        if url and url.partition("://")[0] not in DATABASES:
            raise ValueError("use sqlite:///path, or postgresql://user:password@host/database")
        return url

    @property
    def booking_limits(self) -> tuple[float | None, float | None]:
        """(longest booking in hours, days ahead) of channels that say nothing; None = no limit."""
        return self.max_booking_hours or None, self.max_days_ahead or None

    @property
    def database(self) -> str:
        """The SQLAlchemy URL in force."""
        return self.database_url or f"sqlite:///{self.state_dir / 'slotserve.db'}"


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting in force and where it came from: `default`, `environment` or the path of a file."""

    variable: str
    value: Any
    origin: str
    description: str


def load_settings(environ: Mapping[str, str] | None = None) -> tuple[Settings, list[Origin]]:
    """Settings in force and their origins, in the order of the table. Raises SettingsError naming the variable."""
    env = os.environ if environ is None else environ
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for name in Settings.model_fields:
        variable = PREFIX + name.upper()
        file = env.get(variable + "_FILE")
        if file and variable in env:
            raise SettingsError(f"{variable} and {variable}_FILE are both set; unset one of them")
        if file:
            try:
                values[name] = Path(file).read_text().strip()
            except (OSError, UnicodeDecodeError) as err:
                raise SettingsError(f"{variable}_FILE: {err}") from err
            origins[name] = file
        elif variable in env:
            values[name], origins[name] = env[variable], "environment"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as err:
        first = err.errors(include_input=False)[0]
        raise SettingsError(
            f"{PREFIX}{str(first['loc'][0]).upper()}: {first['msg'].removeprefix('Value error, ')}"
        ) from None
    return settings, [
        Origin(PREFIX + n.upper(), getattr(settings, n), origins.get(n, "default"), f.description or "")
        for n, f in Settings.model_fields.items()
    ]
