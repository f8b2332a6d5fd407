"""Whether a body is text that can be sent back: JSON is UTF-8 (RFC 8259, section 8.1), and so are answers."""

import re

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F])|.)", re.DOTALL
)
"""Escapes of JSON: a surrogate pair, half a pair, any other."""


def is_unicode(body: bytes) -> bool:
    """Whether `body` is UTF-8 without half a surrogate pair, which a client sends that cuts an emoji in two.

    Python reads UTF-16 and UTF-32 as JSON, too; those have bytes of zero.
    """
    if b"\0" in body:
        return False
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any(match[1] for match in _ESCAPE.finditer(body))
