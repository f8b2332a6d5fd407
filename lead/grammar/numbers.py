"""Regular expressions for JSON numbers, with at most 16 digits before the point and at most 16 after it, as
in llama.cpp.
"""

from collections.abc import Callable
from decimal import Decimal

_MAX_DIGITS = 16
_WHOLE = f"(0|[1-9][0-9]{{0,{_MAX_DIGITS - 1}}})"
_PART = rf"(\.[0-9]{{1,{_MAX_DIGITS}}})?"
ANY_NUMBER = rf"-?{_WHOLE}{_PART}([eE][+-]?[0-9]{{1,2}})?"
"""An expression for any number, with exponents that leave every number finite."""


def decimal_of(value: object) -> Decimal | None:
    """Return a finite number with exactly the digits of `value`; None if it is not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    number = Decimal(str(value)) if is_number else None
    return number if number is not None and number.is_finite() else None


def number_between(lower: Decimal | None, upper: Decimal | None, *, over: bool, under: bool) -> str:
    """Return a Lark expression for the numbers from `lower` to `upper`; empty if there are none.

    None: no bound. over, under: exclude `lower` and `upper` themselves, as JSON Schema's exclusiveMinimum and
    exclusiveMaximum do. Numbers may have an exponent only if there is no bound.
    """
    if lower is None and upper is None:
        return f"/{ANY_NUMBER}/"
    if lower is not None and upper is not None and (lower > upper or (lower == upper and (over or under))):
        return ""
    positive = _size_between(lower, upper, over=over, under=under)
    negative = _size_between(_negated(upper), _negated(lower), over=under, under=over)
    parts = [positive] if positive else []
    parts += [f'"-" ({negative})'] if negative else []
    return " | ".join(parts)


def _negated(bound: Decimal | None) -> Decimal | None:
    return None if bound is None else -bound


def _size_between(lower: Decimal | None, upper: Decimal | None, *, over: bool, under: bool) -> str:
    """Return an expression for numbers without a sign."""
    if upper is not None and (upper < 0 or (under and upper == 0)):
        return ""
    parts = [f"/{_WHOLE}{_PART}/"]
    if lower is not None and (lower > 0 or (over and lower == 0)):
        parts.append(f"/{_at_least(lower, over=over)}/")
    if upper is not None:
        parts.append(f"/{_at_most(upper, under=under)}/")
    return " & ".join(parts)


def _parts(bound: Decimal) -> tuple[str, str]:
    """Return the digits before and after the point, the latter without zeros at their end."""
    whole, _, part = f"{bound:f}".partition(".")
    return whole, part.rstrip("0")


def _at_least(bound: Decimal, *, over: bool) -> str:
    whole, part = _parts(bound)
    larger = _first_difference(whole, _more, _rest)
    ways = [rf"(?:{each})(?:\.[0-9]+)?" for each in (*larger, rf"[1-9][0-9]{{{len(whole)},}}")]
    after = _first_difference(part, _more, lambda _: "[0-9]*")
    after.append(f"{part}[0-9]*[1-9][0-9]*" if over else f"{part}[0-9]*")
    optional = "" if part or over else "?"
    ways.append(rf"{whole}(?:\.(?:{'|'.join(each or '[0-9]+' for each in after)})){optional}")
    return "|".join(ways)


def _at_most(bound: Decimal, *, under: bool) -> str:
    whole, part = _parts(bound)
    smaller = _first_difference(whole, _less, _rest)
    ways = [rf"(?:{each})(?:\.[0-9]+)?" for each in smaller]
    if len(whole) > 1:
        ways.append(rf"(?:0|[1-9][0-9]{{0,{len(whole) - 2}}})(?:\.[0-9]+)?")
    after = _first_difference(part, _less, lambda _: "[0-9]*")
    after += [part[:n] for n in range(1, len(part))]
    after += [] if under else [f"{part}0*"]
    if part or not under:
        ways.append(rf"{whole}(?:\.(?:{'|'.join(after)}))?" if after else whole)
    return "|".join(ways)


def _first_difference(digits: str, differs: Callable[[str], str], rest: Callable[[int], str]) -> list[str]:
    """Return an expression for each position at which other digits may first differ from `digits`."""
    ways = [(digits[:i], differs(digit), rest(len(digits) - i - 1)) for i, digit in enumerate(digits)]
    return ["".join(way) for way in ways if way[1]]


def _rest(n: int) -> str:
    return f"[0-9]{{{n}}}" if n else ""


def _more(digit: str) -> str:
    """Return a class of the digits above `digit`; empty for 9."""
    return "" if digit == "9" else f"[{int(digit) + 1}-9]"


def _less(digit: str) -> str:
    return "" if digit == "0" else f"[0-{int(digit) - 1}]"
