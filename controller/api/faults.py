"""What is wrong with a value in a body or a query, in words: pydantic's kinds of faults as sentences of ours (said.py)."""

from __future__ import annotations

from typing import Any

from controller.said import Said, say, words_of
from controller.words import N_

# pydantic's type of a fault -> what is said of it; the places are pydantic's own
_SENTENCES = {
    "missing": N_("is missing"),
    "extra_forbidden": N_("is not known here"),
    "string_too_long": N_("string should have at most %(max_length)s characters"),
    "string_too_short": N_("string should have at least %(min_length)s characters"),
    "string_type": N_("input should be a valid string"),
    "string_pattern_mismatch": N_("string should match pattern '%(pattern)s'"),
    "int_type": N_("input should be a valid integer"),
    "int_parsing": N_("input should be a valid integer"),
    "int_from_float": N_("input should be a valid integer"),
    "float_type": N_("input should be a valid number"),
    "float_parsing": N_("input should be a valid number"),
    "finite_number": N_("input should be a finite number"),
    "bool_type": N_("input should be true or false"),
    "bool_parsing": N_("input should be true or false"),
    "list_type": N_("input should be a valid list"),
    "tuple_type": N_("input should be a valid list"),
    "dict_type": N_("input should be a JSON object"),
    "model_type": N_("input should be a JSON object"),
    "greater_than_equal": N_("input should be greater than or equal to %(ge)s"),
    "greater_than": N_("input should be greater than %(gt)s"),
    "less_than_equal": N_("input should be less than or equal to %(le)s"),
    "less_than": N_("input should be less than %(lt)s"),
    "literal_error": N_("input should be %(expected)s"),
    "too_long": N_("should have at most %(max_length)s items"),
    "too_short": N_("should have at least %(min_length)s items"),
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
