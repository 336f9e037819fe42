"""Who may do what: accounts, sign-ins, keys, and the secret addresses that people hand out."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from controller.store.tables.base import Base, new_id, sorted_text


class User(Base):
    __tablename__ = "users"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(sorted_text(200), unique=True)
    password_hash: Mapped[str | None] = mapped_column(Text)
    role: Mapped[str] = mapped_column(String(16), default="user")
    email: Mapped[str | None] = mapped_column(Text)
    locale: Mapped[str | None] = mapped_column(String(16))
    zone: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[int] = mapped_column(BigInteger)
    disabled_at: Mapped[int | None] = mapped_column(BigInteger)
    # "issuer|subject" of the identity provider.
    subject: Mapped[str | None] = mapped_column(Text, index=True, unique=True)
    # Which events reach the person by which way: {kind: [way, …]}; a kind that is missing takes the defaults.
    notify: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    # Set by an administrator: to be changed at the next sign-in before anything else.
    password_temporary: Mapped[bool] = mapped_column(Boolean, default=False, server_default=text("false"))


class WebSession(Base):
    """A sign-in to the console, from one browser. The cookie holds a random text, the row its hash: an ended row is dead
    at once, whoever has a copy of the cookie."""

    __tablename__ = "web_sessions"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    way: Mapped[str] = mapped_column(String(16))  # password oidc
    created_at: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[int] = mapped_column(BigInteger, index=True)  # exact to minutes
    ended_at: Mapped[int | None] = mapped_column(BigInteger)
    address: Mapped[str] = mapped_column(String(64), default="")
    agent: Mapped[str] = mapped_column(Text, default="")  # what the browser calls itself
    id_token: Mapped[str | None] = mapped_column(Text)  # the provider's, sealed: by it its session is ended as well


class ApiKey(Base):
    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    prefix: Mapped[str] = mapped_column(String(24))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[int | None] = mapped_column(BigInteger)
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)
    last_used_at: Mapped[int | None] = mapped_column(BigInteger)


class SecretLink(Base):
    """A secret, revocable address: an iCal feed (of a person or a channel) or the wall display. Only the hash is kept."""

    __tablename__ = "secret_links"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    kind: Mapped[str] = mapped_column(String(16))  # feed wall
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id"), index=True)  # whose eyes it looks with
    channel_id: Mapped[str | None] = mapped_column(ForeignKey("channels.id"))  # NULL: the person's own bookings
    name: Mapped[str] = mapped_column(String(200), default="")
    prefix: Mapped[str] = mapped_column(String(24))
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[int] = mapped_column(BigInteger)
    revoked_at: Mapped[int | None] = mapped_column(BigInteger)
    last_used_at: Mapped[int | None] = mapped_column(BigInteger)
