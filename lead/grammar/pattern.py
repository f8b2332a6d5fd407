"""A JSON schema's `pattern`, a regular expression of ECMAScript, as a grammar for a JSON string.

What the expression says of characters holds for the text, and the grammar is about its JSON notation: a
quotation mark, a backslash or a line break in the text is an escape sequence there.
"""

from typing import Final

from lead.grammar.rules import character_class, literal, repeated

_LAST = 0x10FFFF
_MOST_NESTING = 50
_MOST_REPEATS = 2000
"""llama.cpp refuses to repeat anything more often."""

Ranges = list[tuple[int, int]]

_DIGIT: Ranges = [(0x30, 0x39)]
_WORD: Ranges = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)]
_BLANK: Ranges = [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x2028, 0x2029), (0xFEFF, 0xFEFF)]
_CLASSES: dict[str, Ranges] = {"d": _DIGIT, "w": _WORD, "s": _BLANK}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_LINE_ENDS: Ranges = [(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]

_ESCAPED: Final = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
_PLAIN: Ranges = [(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E), (0x80, 0xD7FF), (0xE000, _LAST)]
"""What stands for itself in JSON: neither control characters nor quotation marks nor backslashes."""


class UnsupportedPatternError(ValueError):
    """A regular expression that no grammar can express: look-around, back references, word boundaries."""


class InvalidPatternError(ValueError):
    """No regular expression."""


def pattern_body(pattern: str, any_character: str) -> str:
    r"""The expression between the quotation marks; `any_character` is the rule for one of any.

    Without `^` or `$` anything may stand before or behind. Raises InvalidPatternError,
    UnsupportedPatternError.
    """
    starts, ends = pattern.startswith("^"), pattern.endswith("$") and not _is_escaped(pattern)
    inner = pattern[starts : len(pattern) - ends]
    body = _Parser(inner).parse()
    anything = f"{any_character}*"
    return " ".join(filter(None, ["" if starts else anything, f"({body})", "" if ends else anything]))


def _is_escaped(pattern: str) -> bool:
    """Whether the last character follows an odd number of backslashes."""
    before = pattern[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


class _Parser:
    """Recursive descent; every method takes its part of the text off the front."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> str:
        body = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPatternError("unbalanced parentheses")
        return body

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise InvalidPatternError("it ends too early")
        self._at += 1
        return character

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _alternatives(self) -> str:
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        return " | ".join(part or '""' for part in parts)

    def _sequence(self) -> str:
        items = []
        while self._peek() and self._peek() not in "|)":
            items.append(self._repeated(self._item()))
        return " ".join(filter(None, items))

    def _item(self) -> str:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return _characters(self._class())
        if character == ".":
            return _characters(_complement(_LINE_ENDS))
        if character in "*+?":
            raise InvalidPatternError("nothing to repeat")
        if character in "^$":
            raise UnsupportedPatternError("an anchor inside")
        if character == "\\":
            return _characters(self._escape())
        return _characters([(ord(character), ord(character))])

    def _group(self) -> str:
        self._depth += 1
        if self._depth > _MOST_NESTING:
            raise UnsupportedPatternError("nested too deeply")
        if self._takes("?"):
            if self._takes("<") and self._peek() not in {"=", "!", ""}:
                while self._take() != ">":
                    pass
            elif not self._takes(":"):
                raise UnsupportedPatternError("look-around and flags")
        body = self._alternatives()
        if not self._takes(")"):
            raise InvalidPatternError("unbalanced parentheses")
        self._depth -= 1
        return f"({body})"

    def _repeated(self, item: str) -> str:
        bounds = self._quantifier()
        if bounds is None:
            return item
        self._takes("?")  # lazy or greedy: the same strings
        if self._peek() in {"*", "+", "?"} and self._peek():
            raise InvalidPatternError("nothing to repeat")
        return repeated(item, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for mark, bounds in {"*": (0, None), "+": (1, None), "?": (0, 1)}.items():
            if self._takes(mark):
                return bounds
        start = self._at
        if not self._takes("{"):
            return None
        least = self._number()
        most = least
        if least is not None and self._takes(","):
            most = self._number()
        if least is None or not self._takes("}"):
            self._at = start
            raise UnsupportedPatternError("a brace that is no quantifier")
        if max(least, most or 0) > _MOST_REPEATS:
            raise UnsupportedPatternError("too many repetitions")
        if most is not None and most < least:
            raise InvalidPatternError("a quantifier whose numbers are out of order")
        return least, most

    def _number(self) -> int | None:
        digits = ""
        while self._peek() and self._peek() in "0123456789" and len(digits) < 8:  # noqa: PLR2004 - enough
            digits += self._take()
        return int(digits) if digits else None

    def _class(self) -> Ranges:
        negated = self._takes("^")
        ranges: Ranges = []
        while not self._takes("]"):
            low = self._class_member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
                self._take()
                high = self._class_member()
                if len(low) != 1 or len(high) != 1 or low[0][0] > high[0][1]:
                    raise InvalidPatternError("a range whose ends are out of order")
                low = [(low[0][0], high[0][1])]
            ranges += low
        return _complement(ranges) if negated else ranges

    def _class_member(self) -> Ranges:
        character = self._take()
        if character == "\\":
            if self._takes("b"):
                return [(0x08, 0x08)]
            return self._escape()
        return [(ord(character), ord(character))]

    def _escape(self) -> Ranges:
        character = self._take()
        if character.lower() in _CLASSES:
            ranges = _CLASSES[character.lower()]
            return ranges if character.islower() else _complement(ranges)
        if character in _CONTROLS:
            code = _CONTROLS[character]
        elif character in "xu":
            code = self._hexadecimal(2 if character == "x" else 4)
        elif character.isalnum():
            raise UnsupportedPatternError(f"the escape \\{character}")
        else:
            code = ord(character)
        return [(code, code)]

    def _hexadecimal(self, n: int) -> int:
        digits = self._text[self._at : self._at + n]
        if len(digits) != n or not all(c in "0123456789abcdefABCDEF" for c in digits):
            raise InvalidPatternError(f"{digits!r} is no code of {n} digits")
        self._at += n
        return int(digits, 16)


def _complement(ranges: Ranges) -> Ranges:
    left: Ranges = []
    next_low = 0
    for low, high in sorted(ranges):
        if low > next_low:
            left.append((next_low, low - 1))
        next_low = max(next_low, high + 1)
    if next_low <= _LAST:
        left.append((next_low, _LAST))
    return left


def _characters(ranges: Ranges) -> str:
    """One of these characters in JSON's notation."""
    plain = [
        (max(low, first), min(high, last))
        for low, high in ranges
        for first, last in _PLAIN
        if max(low, first) <= min(high, last)
    ]
    escaped = [
        letter for code, letter in _ESCAPED.items() if any(low <= code <= high for low, high in ranges)
    ]
    if len(plain) == 1 and plain[0][0] == plain[0][1] and not escaped:
        return literal(chr(plain[0][0]))
    parts = [character_class(plain)] if plain else []
    parts += [literal("\\" + letter) for letter in escaped]
    if not parts:
        raise UnsupportedPatternError("a class without a character that JSON can hold")
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"
