"""What is wrong with a setting's value, in words that say what to write. Knows pydantic's errors, and no setting."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from gcpsl.errors import nearest

TRUTH = "truth"  # true or false where a number belongs

_WORDS = {
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be above {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be below {lt:g}",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of reasonable size",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be finite",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "path_type": "must be a path",
    "string_pattern_mismatch": "must be the name of a folder, without '/', control characters, or '.' or '-' in front",
    "tuple_type": 'must be a list, as in [90, 95] or ["tensorboard"]',
    "model_type": "is a section: set what is in it, as in a [section] of a file or section.key=value",
    "model_attributes_type": "is a section: set what is in it, as in a [section] of a file or section.key=value",
    TRUTH: "must be a value, not true or false",
}


def explain(error: ValidationError, keys: Sequence[str]) -> Iterator[str]:
    """A line per mistake; the ways in which a value fits no branch of its type are one mistake."""
    misfits: dict[str, list[str]] = {}
    for item in error.errors():
        key = ".".join(str(part) for part in item["loc"] if not isinstance(part, int))
        if item["type"] == "extra_forbidden":
            yield from (_unknown(name, keys) for name in _leaves(key, item["input"]))
        elif item["type"] == "value_error":
            yield str(item["ctx"]["error"])
        else:
            value = item["input"]
            if item["type"] == TRUTH:
                name = item["ctx"]["name"]
                key, value = (f"{key}.{name}" if key else name), value[name]
            words = misfits.setdefault(f"{_setting(key, keys)} = {_shown(value)}", [])
            words += [said for said in [_said(dict(item))] if said not in words]
    for value, messages in misfits.items():
        yield f"{value}: {', or '.join(messages)}"


def _said(item: dict[str, Any]) -> str:
    context = item.get("ctx", {})
    if item["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        close = nearest(str(item["input"]), allowed)
        return f"must be {context['expected']}" + (f" ({close})" if close.startswith("did you") else "")
    if item["type"] in _WORDS:
        return _WORDS[item["type"]].format(**context)
    message: str = item["msg"]
    return message[0].lower() + message[1:]


def _leaves(key: str, value: object) -> list[str]:
    """The dotted keys below an unknown one, which may be a misspelt section."""
    if isinstance(value, dict) and value:
        return [leaf for name, inner in value.items() for leaf in _leaves(f"{key}.{name}", inner)]
    return [key]


def _unknown(key: str, keys: Sequence[str]) -> str:
    name = key.rpartition(".")[2]
    same_name = [known for known in keys if known.rpartition(".")[2] == name]
    hint = f"did you mean '{same_name[0]}'?" if same_name else nearest(key, keys)
    return f"unknown setting '{key}': {hint}"


def _setting(key: str, keys: Sequence[str]) -> str:
    """The setting's own name: pydantic appends the branch of a union to it."""
    return next((known for known in keys if key == known or key.startswith(known + ".")), key)


def _shown(value: object) -> str:
    return json.dumps(value, default=str)
