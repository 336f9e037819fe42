"""Signing in by an identity provider (OpenID Connect, the code flow with PKCE): the protocol, as Authlib and joserfc do it.

What comes back is believed only where the ID token is signed by a key of the provider, and names this provider, this
console and the nonce of this very sign-in. Who somebody is here is settled in oidc_accounts.py.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

import httpx
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from controller.context import Context
from controller.settings import Settings

TIMEOUT = httpx.Timeout(10, connect=5)
KNOWN_SECONDS = 3600.0  # how long what the provider publishes is taken as it was
LEEWAY_SECONDS = 60
# Signatures with the provider's private key only: never none, never one made with a shared secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")


class OidcError(Exception):
    """A sign-in that does not go on. `code` is one of those the console has words for; the text is for log and audit."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(detail or code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in on its way: where the browser goes, and what is compared when it is back."""

    url: str
    state: str
    nonce: str
    verifier: str


class Provider:
    """The provider of the settings. Thread-safe; what it publishes is asked for when it is first needed."""

    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None = None) -> None:
        self._settings, self._transport = settings, transport
        self._lock = threading.Lock()
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def begin(self, redirect_uri: str) -> Begun:
        """Raises OidcError("down")."""
        metadata = self.metadata()
        nonce, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        with self._client(metadata, redirect_uri) as client:
            url, state = client.create_authorization_url(
                metadata["authorization_endpoint"], nonce=nonce, code_verifier=verifier
            )
        return Begun(url, state, nonce, verifier)

    def finish(self, code: str, begun: Begun, redirect_uri: str, now: float) -> dict[str, Any]:
        """The claims of who has signed in; `now` in seconds. Raises OidcError ("down", "refused", "token")."""
        metadata = self.metadata()
        with self._client(metadata, redirect_uri) as client, _talking():
            token = client.fetch_token(metadata["token_endpoint"], code=code, code_verifier=begun.verifier)
            if not isinstance(token.get("id_token"), str):
                raise OidcError("token", "the provider sent no ID token")
            claims = self._verified(token, begun.nonce, metadata, now)
            return self._completed(client, claims, metadata)

    def logout_url(self, back_to: str) -> str | None:
        """Where a person ends their session at the provider, where it has said so; asks nobody."""
        known = self._metadata
        place = known[1].get("end_session_endpoint") if known else None
        if not isinstance(place, str):
            return None
        query = urlencode({"client_id": self._settings.oidc_client_id, "post_logout_redirect_uri": back_to})
        return f"{place}{'&' if '?' in place else '?'}{query}"

    def metadata(self) -> dict[str, Any]:
        """What the provider publishes of itself. Raises OidcError("down")."""
        with self._lock:
            if self._metadata is None or time.monotonic() - self._metadata[0] > KNOWN_SECONDS:
                issuer = self._settings.oidc_issuer.rstrip("/")
                found = self._get(f"{issuer}/.well-known/openid-configuration")
                if str(found.get("issuer", "")).rstrip("/") != issuer:
                    raise OidcError("down", f"{issuer} says that it is {found.get('issuer')!r}")
                missing = [n for n in ("authorization_endpoint", "token_endpoint", "jwks_uri") if not found.get(n)]
                if missing:
                    raise OidcError("down", f"{issuer} does not say its {', '.join(missing)}")
                self._metadata = (time.monotonic(), found)
            return self._metadata[1]

    def _verified(self, token: dict[str, Any], nonce: str, metadata: dict[str, Any], now: float) -> dict[str, Any]:
        """The claims of an ID token that is what it must be."""
        said = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = [a for a in ALGORITHMS if a in said]
        try:
            try:
                read = jwt.decode(token["id_token"], self._key_set(metadata), algorithms=algorithms)
            except InvalidKeyIdError:  # the provider has new keys
                read = jwt.decode(token["id_token"], self._key_set(metadata, fresh=True), algorithms=algorithms)
            client_id = self._settings.oidc_client_id
            claims = CodeIDToken(
                read.claims,
                read.header,
                {
                    "iss": {"essential": True, "value": metadata["issuer"]},
                    "aud": {"essential": True, "value": client_id},
                    "sub": {"essential": True},
                    "nonce": {"essential": True, "value": nonce},
                },
                {"nonce": nonce, "client_id": client_id, "access_token": token.get("access_token")},
            )
            claims.validate(now=int(now), leeway=LEEWAY_SECONDS)
        except (JoseError, ValueError, TypeError, KeyError) as err:
            raise OidcError("token", f"ID token: {err or type(err).__name__}") from err
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise OidcError("token", "ID token: sub is no text")
        return dict(claims)

    def _completed(self, client: OAuth2Client, claims: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
        """With what only the user-info endpoint tells; what the ID token says wins."""
        place = metadata.get("userinfo_endpoint")
        wanted = ("email", self._settings.oidc_name_claim, self._settings.oidc_groups_claim.split(".")[0])
        if not place or all(name in claims for name in wanted):
            return claims
        answer = client.get(place)
        answer.raise_for_status()
        more = answer.json()
        if not isinstance(more, dict) or more.get("sub") != claims["sub"]:
            raise OidcError("token", "the user-info endpoint speaks of somebody else")
        return {**more, **claims}

    def _key_set(self, metadata: dict[str, Any], fresh: bool = False) -> KeySet:
        with self._lock:
            if fresh or self._keys is None or time.monotonic() - self._keys[0] > KNOWN_SECONDS:
                found = self._get(metadata["jwks_uri"])
                try:
                    self._keys = (time.monotonic(), KeySet.import_key_set(cast("Any", found)))
                except (JoseError, ValueError, TypeError, KeyError) as err:
                    raise OidcError("down", f"the provider's keys cannot be read: {err}") from err
            return self._keys[1]

    def _get(self, url: str) -> dict[str, Any]:
        with _talking(), httpx.Client(timeout=TIMEOUT, transport=self._transport, trust_env=_outside(url)) as client:
            answer = client.get(url, follow_redirects=True)
            answer.raise_for_status()
            found = answer.json()
        if not isinstance(found, dict):
            raise OidcError("down", f"{url} does not answer with a JSON object")
        return found

    def _client(self, metadata: dict[str, Any], redirect_uri: str) -> OAuth2Client:
        secret = self._settings.oidc_client_secret
        ways = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        way = "none" if not secret else next((w for w in _WAYS if w in ways), "client_secret_basic")
        return OAuth2Client(
            client_id=self._settings.oidc_client_id,
            client_secret=secret or None,
            token_endpoint_auth_method=way,
            scope=self._settings.oidc_scopes,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            timeout=TIMEOUT,
            transport=self._transport,
            trust_env=_outside(self._settings.oidc_issuer),
        )


_WAYS = ("client_secret_basic", "client_secret_post")
_MAKING = threading.Lock()


def provider(ctx: Context) -> Provider:
    """One a process."""
    with _MAKING:
        found = ctx.extra.get("oidc")
        if not isinstance(found, Provider):
            found = ctx.extra["oidc"] = Provider(ctx.settings)
        return found


def label(settings: Settings) -> str:
    """The provider's name, for the button; "" where there is none."""
    return settings.oidc_issuer and (settings.oidc_label or urlsplit(settings.oidc_issuer).hostname or "")


@contextmanager
def _talking() -> Iterator[None]:
    """What can go wrong on the way, as an OidcError."""
    try:
        yield
    except OAuthError as err:
        raise OidcError("refused", f"the provider refused the sign-in: {err.error} {err.description or ''}") from err
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as err:
        raise OidcError("down", f"the provider does not answer as it should: {err or type(err).__name__}") from err


def _outside(url: str) -> bool:
    """A proxy of the environment is not for this machine."""
    return urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1")
