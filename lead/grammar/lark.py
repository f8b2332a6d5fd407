"""Writing llguidance's Lark.

https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

_HEADER = '%llguidance {"no_forcing": true}'
"""Without it, forced text gets its usual tokens only: the mask would allow less than the grammar does."""

_JSON_OPTIONS = {
    # Any amount of white space invites models to write nothing else; one space follows what it usually does.
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    # Let pass what llguidance cannot express: `not`, `if`, `uniqueItems`, overlapping alternatives of oneOf.
    "lenient": True,
    "coerce_one_of": True,
    "json_allow_general_unicode_escapes": True,
}


def lark_grammar(rules: Iterable[str]) -> str:
    """A whole grammar; one of the rules is `start`."""
    return "\n".join([_HEADER, *rules]) + "\n"


def json_rule(name: str, schema: Mapping[str, Any]) -> str:
    """A rule of the JSON documents of `schema`, which has been checked."""
    return f"{name}: %json {json.dumps({**schema, 'x-guidance': _JSON_OPTIONS})}"


def literal(text: str) -> str:
    """`text` as a string."""
    return json.dumps(text, ensure_ascii=False)


def spelled(text: str, special_tokens: Mapping[str, int]) -> str:
    """`text` as an expression; what is the text of a special token may be written as that token."""
    marks = sorted((mark for mark in special_tokens if mark in text), key=len, reverse=True)
    if not marks:
        return literal(text)
    parts = re.split(f"({'|'.join(map(re.escape, marks))})", text)
    return " ".join(
        f"(<[{special_tokens[part]}]> | {literal(part)})" if part in special_tokens else literal(part)
        for part in parts
        if part
    )
