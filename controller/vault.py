"""Secrets of others that the database has to keep (addresses and keys of webhooks and chat services, an identity
provider's tokens) are sealed in it: whoever reads the database or a dump of it alone reads none of them.

Sealed by Fernet (`cryptography`: AES-128-CBC with HMAC-SHA256) with a key that lies beside the database and never in it:
SLOTSERVE_SECRETS_KEY, or else the file secrets.key of the state folder, made at the first start. Several lines are
several keys: the first one seals, each of them opens, so that a key can be replaced. Without its key a sealed text is
lost: there is no other way in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from controller import key_files
from controller.context import Context
from controller.settings import Settings
from controller.store import sealed
from controller.store.session import Store

FILE = "secrets.key"
SEALED = "sealed:"
VARIABLE = "SLOTSERVE_SECRETS_KEY"


class BadKey(Exception):
    """The key cannot be used; the message says which and what to do."""


class Locked(Exception):
    """A text that was sealed with a key that is not here; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Vault:
    """`origin` = where its keys come from, for messages."""

    keys: tuple[bytes, ...]
    origin: str

    def seal(self, text: str) -> str:
        return SEALED + self._box().encrypt(text.encode()).decode()

    def open(self, kept: str) -> str:
        """What was sealed; a text from before there was a vault is read as it is. Raises Locked."""
        if not kept.startswith(SEALED):
            return kept
        try:
            return self._box().decrypt(kept.removeprefix(SEALED)).decode()
        except InvalidToken:
            raise Locked(f"sealed with another key than that of {self.origin}: {_PUT_BACK}") from None

    def is_fresh(self, kept: str) -> bool:
        """Whether a text is sealed, and by the first key."""
        if not kept.startswith(SEALED):
            return False
        try:
            Fernet(self.keys[0]).decrypt(kept.removeprefix(SEALED))
        except InvalidToken:
            return False
        return True

    def fingerprint(self) -> str:
        """Alike for whoever seals with the same key."""
        return hashlib.sha256(self.keys[0]).hexdigest()

    def _box(self) -> MultiFernet:
        return MultiFernet([Fernet(key) for key in self.keys])


def there(settings: Settings) -> Vault | None:
    """The vault of the settings, unless its file is still to be made. Raises BadKey."""
    if settings.secrets_key:
        return _vault(settings.secrets_key.encode(), VARIABLE)
    path = _path(settings)
    try:
        return _vault(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise BadKey(f"{path}: {err.strerror}") from None


def opened(settings: Settings) -> Vault:
    """The vault of the settings; its file is made where there is none. Raises BadKey."""
    found = there(settings)
    if found is not None:
        return found
    path = _path(settings)
    return _vault(key_files.kept(path, Fernet.generate_key, bool), str(path))


def of(ctx: Context) -> Vault:
    """One a process."""
    found: Vault = ctx.once("vault", lambda: opened(ctx.settings))
    return found


def renew(store: Store, vault: Vault) -> tuple[int, int]:
    """Brings what the database keeps up to the first key: (texts sealed anew, rows that no key here opens)."""

    def again(kept: str) -> str | None:
        try:
            return vault.seal(vault.open(kept))
        except Locked:
            return None

    return sealed.reseal(store, vault.is_fresh, again)


def trouble(store: Store, settings: Settings) -> str:
    """What is wrong with the key or with what the database keeps, in words; "" where nothing is. Writes nothing."""
    kept = sealed.kept(store)
    try:
        vault = there(settings)
        if vault is None:
            return f"{_path(settings)} is not there, and {len(kept)} secrets need it: {_PUT_BACK}" if kept else ""
        for text in kept:
            vault.open(text)
    except (BadKey, Locked) as err:
        return str(err)
    return ""


_PUT_BACK = "put the key back (it is part of `slotserve backup`), or set the addresses anew"


def _path(settings: Settings) -> Path:
    return settings.state_dir / FILE


def _vault(text: bytes, origin: str) -> Vault:
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    for number, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError:
            raise BadKey(
                f"{origin}: line {number} is no key (32 bytes in URL-safe base64); put the right one back, or another one "
                "in its place: what is sealed with a key that is lost has to be set anew"
            ) from None
    if not keys:
        raise BadKey(f"{origin} is empty; put the key back, or remove it: a new one is made at the next start")
    return Vault(keys, origin)
