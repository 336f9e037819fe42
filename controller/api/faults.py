"""What is wrong with a value in a body or a query, in words: pydantic's kinds of faults as sentences of ours (said.py)."""

from __future__ import annotations

from typing import Any

from controller.said import Said, say, words_of
from controller.words import N_

# pydantic's type of a fault -> what is said of it; the places are pydantic's own
_SENTENCES = {
    "missing": N_("is missing"),
    "extra_forbidden": N_("is not known here"),
    "string_too_long": N_("may have %(max_length)s characters at most"),
    "string_too_short": N_("must have %(min_length)s characters at least"),
    "string_type": N_("must be text"),
    "string_pattern_mismatch": N_("must look like %(pattern)s"),
    "int_type": N_("must be a whole number"),
    "int_parsing": N_("must be a whole number"),
    "int_from_float": N_("must be a whole number"),
    "float_type": N_("must be a number"),
    "float_parsing": N_("must be a number"),
    "finite_number": N_("must be a finite number"),
    "bool_type": N_("must be true or false"),
    "bool_parsing": N_("must be true or false"),
    "list_type": N_("must be a list"),
    "tuple_type": N_("must be a list"),
    "dict_type": N_("must be a JSON object"),
    "model_type": N_("must be a JSON object"),
    "greater_than_equal": N_("must be %(ge)s at least"),
    "greater_than": N_("must be more than %(gt)s"),
    "less_than_equal": N_("may be %(le)s at most"),
    "less_than": N_("must be less than %(lt)s"),
    "literal_error": N_("must be %(expected)s"),
    "too_long": N_("may have %(max_length)s items at most"),
    "too_short": N_("must have %(min_length)s items at least"),
}


def words(found: dict[str, Any]) -> str:
    """The words for one of pydantic's errors; its own, in English, for a kind that is not in the table."""
    kind, context = found["type"], found.get("ctx") or {}
    if kind == "value_error" and isinstance(context.get("error"), ValueError):
        return words_of(context["error"])
    if kind in _SENTENCES:
        return Said(_SENTENCES[kind], {k: v for k, v in context.items() if isinstance(v, (str, int, float))})
    said = str(found["msg"])
    return say("%(said)s", said=said[0].lower() + said[1:])
