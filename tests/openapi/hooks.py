"""For schemathesis, which loads this by itself: what a schema cannot say about our query strings."""

from __future__ import annotations

import schemathesis
from schemathesis.specs.openapi.checks import negative_data_rejection


@schemathesis.check
def refuses_what_does_not_fit(ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case):
    """Its own check; but a parameter without a value counts as not given, as forms send it."""
    if "" in (case.query or {}).values():
        return None
    return negative_data_rejection(ctx, response, case)
