"""How deep a JSON text is nested, found without parsing it: parsers and those who walk its values recurse."""

import re

_OPENING = b"[{"
_QUOTE = ord('"')
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[\[\]{}]', re.DOTALL)
"""Brackets; and strings, whose brackets do not count. Linear: also a string that does not end is one."""


def is_deeper(text: bytes, most: int) -> bool:
    """Whether `text` has more than `most` arrays and objects inside each other. It need not be JSON."""
    if text.count(b"[") + text.count(b"{") <= most:
        return False
    depth = 0
    for match in _TOKEN.finditer(text):
        first = text[match.start()]
        if first in _OPENING:
            depth += 1
            if depth > most:
                return True
        elif first != _QUOTE:
            depth -= 1
    return False
