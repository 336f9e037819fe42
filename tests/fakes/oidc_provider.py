"""An identity provider in small that can lie: real discovery, real signed ID tokens, PKCE and the client's secret checked.

POST /lie {…} says what the next answers do wrong (nothing = honest again):
  claims {…}        over the ID token's claims (null takes one out)    user {…}   who signs in (claims)
  sign "none" | "HS256" | "stranger" | "rotate"   how the token is signed ("rotate": with a new key, honestly)
  error "access_denied"       instead of a code          metadata {…}   over what is published
  token_status N / userinfo {…}   what these endpoints answer
A browser that has been at /authorize has a session here (its cookie), until it has been at /end; GET /session says.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import Any
from urllib.parse import unquote_plus, urlencode

from flask import Flask, jsonify, redirect, request
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from werkzeug.serving import make_server

CLIENT, SECRET = "slotserve", "the console's secret"
app = Flask("oidc_provider")
lie: dict[str, Any] = {}
codes: dict[str, dict[str, str]] = {}
keys: list[RSAKey] = []
sessions: set[str] = set()


def new_key() -> RSAKey:
    return RSAKey.generate_key(2048, parameters={"kid": secrets.token_hex(4), "use": "sig", "alg": "RS256"})


def user() -> dict[str, Any]:
    return {
        "sub": "42",
        "preferred_username": "mei",
        "email": "mei@example.org",
        "email_verified": True,
        **lie.get("user", {}),
    }


def issuer() -> str:
    return request.host_url.rstrip("/")


@app.post("/lie")
def tell() -> Any:
    lie.clear()
    lie.update(request.get_json())
    if lie.get("sign") == "rotate":
        keys.insert(0, new_key())
        del keys[1:]
    return jsonify({})


@app.get("/.well-known/openid-configuration")
def configuration() -> Any:
    said = {
        "issuer": issuer(),
        "authorization_endpoint": f"{issuer()}/authorize",
        "token_endpoint": f"{issuer()}/token",
        "userinfo_endpoint": f"{issuer()}/userinfo",
        "end_session_endpoint": f"{issuer()}/end",
        "jwks_uri": f"{issuer()}/keys",
        "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
    }
    return jsonify({n: v for n, v in {**said, **lie.get("metadata", {})}.items() if v is not None})


@app.get("/keys")
def key_set() -> Any:
    return jsonify({"keys": [k.as_dict(private=False) for k in keys]})


@app.get("/authorize")
def authorize() -> Any:
    asked = request.args
    assert asked["client_id"] == CLIENT
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert "openid" in asked["scope"].split()
    if "error" in lie:
        answer = {"error": lie["error"], "error_description": "no, thank you", "state": asked["state"]}
    else:
        code = secrets.token_urlsafe(8)
        codes[code] = dict(asked.items())
        answer = {"code": code, "state": asked["state"]}
    back = redirect(f"{asked['redirect_uri']}?{urlencode(answer)}")
    here = secrets.token_urlsafe(8)
    sessions.add(here)
    back.set_cookie("here", here)
    return back


@app.get("/session")
def session() -> Any:
    return jsonify({"signed_in": request.cookies.get("here") in sessions})


@app.get("/end")
def end() -> Any:
    """RP-initiated logout: only for who shows a token of ours, and back only to where this client has registered."""
    asked = request.args
    claims = jwt.decode(asked["id_token_hint"], keys[0], algorithms=["RS256"]).claims
    assert (claims["iss"], claims["aud"], asked["client_id"]) == (issuer(), CLIENT, CLIENT)
    assert asked["post_logout_redirect_uri"].endswith("/login")
    sessions.discard(request.cookies.get("here", ""))
    return redirect(asked["post_logout_redirect_uri"])


@app.post("/token")
def token() -> Any:
    if "token_status" in lie:
        return "<html>out of order</html>", lie["token_status"]
    asked = codes.pop(request.form["code"], None)
    proof = base64.urlsafe_b64encode(hashlib.sha256(request.form.get("code_verifier", "").encode()).digest())
    auth = request.authorization
    if (
        asked is None
        or asked["code_challenge"] != proof.decode().rstrip("=")
        or asked["redirect_uri"] != request.form["redirect_uri"]
    ):
        return jsonify({"error": "invalid_grant"}), 400
    if auth is None or (unquote_plus(auth.username or ""), unquote_plus(auth.password or "")) != (CLIENT, SECRET):
        return jsonify({"error": "invalid_client"}), 401
    now = int(time.time())
    claims = {"iss": issuer(), "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"], **user()}
    if lie.get("userinfo"):
        claims = {n: v for n, v in claims.items() if n not in ("preferred_username", "email", "email_verified")}
    claims = {n: v for n, v in {**claims, **lie.get("claims", {})}.items() if v is not None}
    return jsonify({"access_token": "access", "token_type": "Bearer", "id_token": signed(claims)})


@app.get("/userinfo")
def userinfo() -> Any:
    assert request.headers["Authorization"] == "Bearer access"
    return jsonify({**user(), **lie.get("userinfo", {})})


def signed(claims: dict[str, Any]) -> str:
    match lie.get("sign"):
        case "none":
            return ".".join([_part({"alg": "none"}), _part(claims), ""])
        case "HS256":  # the public key, which everybody has, taken for a shared secret
            public = json.dumps(keys[0].as_dict(private=False))
            return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(public))
        case "stranger":
            return jwt.encode({"alg": "RS256", "kid": keys[0].kid}, claims, new_key())
    return jwt.encode({"alg": "RS256", "kid": keys[0].kid}, claims, keys[0])


def _part(data: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


if __name__ == "__main__":
    keys.append(new_key())
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()
