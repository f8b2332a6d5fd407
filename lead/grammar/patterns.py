"""Converts patterns of JSON schemas with look-ahead to patterns without, which an automaton can match."""

import re

from lead.grammar.references import SchemaError

_CLASS = r"\[\^?(?:[^\]\\]|\\.)+\]|\\[sSdDwW]|\\[^a-zA-Z0-9]|[^\\\[\](){}|.^$*+?]"
_AHEAD = re.compile(
    r"\(\?(?P<sign>[=!])(?P<text>(?:[^()\\\[\]]|\\.|\[(?:[^\]\\]|\\.)*\]|\((?:[^()\\\[\]]|\\.|\[(?:[^\]\\]|\\.)*\])*\))*)\)"
)
"""Look-ahead, which may contain groups, but not groups within groups."""
_ALL_OF_A_KIND = re.compile(rf"\^?(?P<kind>{_CLASS})(?P<times>[*+])\$")
_IN_A_ROW = re.compile(rf"\^?(?:{_CLASS})+")
_NOT_REGULAR = re.compile(r"\\[1-9bBk]|\(\?<?[=!]")
"""Back references, look-around and word boundaries."""
_IN_CLASSES = re.compile(r"\\.|\[(?:[^\]\\]|\\.)*\]")


class NotRegularError(SchemaError):
    """A pattern that no grammar can express."""


def plain_patterns(pattern: str, path: str) -> list[str]:
    """Return patterns without look-around: a text matches `pattern` if and only if it matches all of them.

    Raises NotRegularError naming `path` if there are none.
    """
    plain = pattern.removeprefix("^")
    found = []
    while len(plain) < len(pattern) and (ahead := _AHEAD.match(plain)):
        sign, text = ahead["sign"], ahead["text"]
        found.append(_beginning(text.removeprefix("^")) if sign == "=" else _without(text, path))
        plain = plain[ahead.end() :]
    if found and "|" in _IN_CLASSES.sub("", re.sub(r"\([^()]*\)", "", plain)):
        raise _not_regular(path)
    patterns = [f"^{plain}", *found] if found else [pattern]
    if any(_NOT_REGULAR.search(each.replace("\\\\", "")) for each in patterns):
        raise _not_regular(path)
    return patterns


def _beginning(text: str) -> str:
    """Return a pattern for the texts whose beginning matches `text`."""
    return f"^(?:{text[:-1]})$" if text.endswith("$") and not text.endswith(r"\$") else f"^(?:{text})"


def _without(text: str, path: str) -> str:
    """Return a pattern for the texts whose beginning does not match `text`."""
    if same := _ALL_OF_A_KIND.fullmatch(text):
        other = _complement(same["kind"])
        return other if same["times"] == "*" else rf"^(?:|[\s\S]*{other}[\s\S]*)$"
    if _IN_A_ROW.fullmatch(text):
        kinds = re.findall(_CLASS, text.removeprefix("^"))
        begun = ["".join(kinds[:n]) for n in range(len(kinds))]
        others = [start + _complement(kind) for start, kind in zip(begun, kinds, strict=True)]
        return rf"^(?:{'|'.join(begun)}|(?:{'|'.join(others)})[\s\S]*)$"
    raise _not_regular(path)


def _complement(kind: str) -> str:
    """Return the class of all characters that `kind`, a class or a character, does not have."""
    if kind.startswith("[^"):
        return f"[{kind[2:]}"
    if kind.startswith("["):
        return f"[^{kind[1:]}"
    return kind.swapcase() if re.fullmatch(r"\\[sSdDwW]", kind) else f"[^{kind}]"


def _not_regular(path: str) -> NotRegularError:
    return NotRegularError(
        f"{path}/pattern: back references, word boundaries, and look-around other than simple look-ahead at "
        "the beginning, are not supported"
    )
