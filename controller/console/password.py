"""/password: one's own password, changed by choice, or because an administrator has set a temporary one."""

from __future__ import annotations

from typing import Any

from flask import Flask, redirect, render_template, request
from flask.typing import ResponseReturnValue
from flask_babel import gettext as _

from controller import accounts
from controller.api import auth
from controller.console.login import enter
from controller.console.signed_in import person
from controller.context import Context
from controller.errors import ApiError
from controller.store import audit, users


def register(app: Flask, ctx: Context) -> None:
    """The page and its form. Every session of the person ends; this browser gets a new one."""

    @app.get("/password")
    def password() -> ResponseReturnValue:
        who = person()
        if who is None:
            return redirect("/login?next=/password")
        return render_template("console/password.html", error="", **_facts(who))

    @app.post("/password")
    def change_password() -> ResponseReturnValue:
        app.extensions["csrf"].protect()
        who, signed_in = person(), auth.current(ctx)
        if who is None or signed_in is None:
            return redirect("/login?next=/password")
        present, new = request.form.get("present", "")[:1000], request.form.get("new", "")
        error = ""
        with ctx.store.read() as db:
            right = who.password_hash is not None and users.check_password(db, who.name, present) is not None
        if who.password_hash is None:
            error = _("Your account has no password: you sign in in another way.")
        elif not right:
            error = _("That is not your present password.")
        elif new != request.form.get("again", ""):
            error = _("The two new passwords differ.")
        elif new == present:
            error = _("The new password is the present one; choose another.")
        else:
            try:
                hashed = users.hash_password(new)
            except ApiError:
                error = _("A password has %(least)s to 1000 characters.", least=users.MIN_PASSWORD)
        if error:
            return render_template("console/password.html", error=error, **_facts(who)), 422
        with ctx.store.write() as db:
            user = users.get(db, who.id)
            if user is not None:
                accounts.set_password(db, user, hashed, ctx.clock(), temporary=False)
                audit.add(db, who.id, "user.password", who.id, ctx.clock(), after={"temporary": False})
        enter(ctx, who, signed_in.way)
        return redirect("/")


def _facts(who: Any) -> dict[str, Any]:
    return {
        "temporary": who.password_temporary,
        "has_password": who.password_hash is not None,
        "least": users.MIN_PASSWORD,
    }
