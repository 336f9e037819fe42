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
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
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


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who has signed in, by the provider's claims, and the ID token that said so."""

    claims: dict[str, Any]
    id_token: str


class Provider:
    """The provider of the settings. Thread-safe; what it publishes is asked for when it is first needed."""

    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None = None) -> None:
        self._settings, self._transport = settings, transport
        self._lock = threading.Lock()
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def begin(self, redirect_uri: str) -> Begun:
        """Raises OidcError("down")."""
        place = self.metadata()["authorization_endpoint"]
        state, nonce, verifier = (secrets.token_urlsafe(n) for n in (24, 24, 48))
        url = prepare_grant_uri(
            place,
            self._settings.oidc_client_id,
            "code",
            redirect_uri,
            self._settings.oidc_scopes,
            state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        return Begun(url, state, nonce, verifier)

    def finish(self, code: str, begun: Begun, redirect_uri: str, now: float) -> SignedIn:
        """Who has signed in; `now` in seconds. Raises OidcError ("down", "refused", "token")."""
        metadata = self.metadata()
        with _talking(), self._client(metadata["token_endpoint"]) as client:
            token = self._token(client, metadata, code, begun, redirect_uri)
            claims = self._verified(token, begun.nonce, metadata, now)
            return SignedIn(self._completed(client, token, claims, metadata), token["id_token"])

    def end_session_url(self, back_to: str, id_token: str) -> str | None:
        """Where a browser ends the session at the provider (RP-initiated logout), and is sent back from; None where it
        offers no such thing. Raises OidcError("down")."""
        place = self.metadata().get("end_session_endpoint")
        if not isinstance(place, str) or urlsplit(place).scheme not in ("http", "https"):
            return None
        said = {"client_id": self._settings.oidc_client_id, "post_logout_redirect_uri": back_to}
        query = urlencode({"id_token_hint": id_token, **said} if id_token else said)
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

    def _token(
        self, client: httpx.Client, metadata: dict[str, Any], code: str, begun: Begun, redirect_uri: str
    ) -> dict[str, Any]:
        """What the provider gives for the code."""
        name, secret = self._settings.oidc_client_id, self._settings.oidc_client_secret
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": begun.verifier,
        }
        ways = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        basic = secret and "client_secret_basic" in ways
        if not basic:
            form |= {"client_id": name, **({"client_secret": secret} if secret else {})}
        auth = httpx.BasicAuth(quote_plus(name), quote_plus(secret)) if basic else httpx.USE_CLIENT_DEFAULT
        answer = client.post(metadata["token_endpoint"], data=form, auth=auth)
        said = answer.json()
        if isinstance(said, dict) and "error" in said:
            raise OidcError("refused", f"{said['error']} {said.get('error_description', '')}"[:500].strip())
        answer.raise_for_status()
        if not isinstance(said, dict) or not isinstance(said.get("id_token"), str):
            raise OidcError("token", "the provider sent no ID token")
        return said

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

    def _completed(
        self, client: httpx.Client, token: dict[str, Any], claims: dict[str, Any], metadata: dict[str, Any]
    ) -> dict[str, Any]:
        """With what only the user-info endpoint tells; what the ID token says wins."""
        place = metadata.get("userinfo_endpoint")
        wanted = ("email", self._settings.oidc_name_claim, self._settings.oidc_groups_claim.split(".")[0])
        access = token.get("access_token")
        if not place or not isinstance(access, str) or all(name in claims for name in wanted):
            return claims
        answer = client.get(place, headers={"Authorization": f"Bearer {access}"})
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
        with _talking(), self._client(url) as client:
            answer = client.get(url, follow_redirects=True)
            answer.raise_for_status()
            found = answer.json()
        if not isinstance(found, dict):
            raise OidcError("down", f"{url} does not answer with a JSON object")
        return found

    def _client(self, url: str) -> httpx.Client:
        """A proxy of the environment is not for this machine."""
        outside = urlsplit(url).hostname not in ("127.0.0.1", "localhost", "::1")
        return httpx.Client(timeout=TIMEOUT, transport=self._transport, trust_env=outside)


def provider(ctx: Context) -> Provider:
    """One a process."""
    found: Provider = ctx.once("oidc", lambda: Provider(ctx.settings))
    return found


def label(settings: Settings) -> str:
    """The provider's name, for the button; "" where there is none."""
    return settings.oidc_issuer and (settings.oidc_label or urlsplit(settings.oidc_issuer).hostname or "")


@contextmanager
def _talking() -> Iterator[None]:
    """What can go wrong on the way, as an OidcError."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as err:
        raise OidcError("down", f"the provider does not answer as it should: {err or type(err).__name__}") from err
