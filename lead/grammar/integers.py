"""Integers between two bounds, as a grammar: their decimal notation without leading zeros."""

_MOST_DIGITS = 16
"""Longer ones lose precision in most readers of JSON; llama.cpp's rules stop there, too."""


def integer_between(least: int | None, most: int | None) -> str:
    """A GBNF expression for all integers from `least` to `most` (None: no bound); least ≤ most."""
    bound = max(10**_MOST_DIGITS - 1, *(abs(given) for given in (least, most, 0) if given is not None))
    low = -bound if least is None else max(least, -bound)
    high = bound if most is None else min(most, bound)
    parts = []
    if low < 0:
        negative = _natural_between(max(1, -high), -low)
        parts.append(f'"-" ({negative})')
    if high >= 0:
        parts.append(_natural_between(max(0, low), high))
    return " | ".join(parts)


def _natural_between(low: int, high: int) -> str:
    """0 ≤ low ≤ high: one alternative for each number of digits."""
    parts = []
    while low <= high:
        n_digits = len(str(low))
        end = min(high, 10**n_digits - 1)
        parts.append(_same_length(str(low), str(end)))
        low = end + 1
    return " | ".join(parts)


def _same_length(low: str, high: str) -> str:
    """Where low ≤ high, with the same number of digits."""
    n_common = next((i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b), len(low))
    prefix = f'"{low[:n_common]}" ' if n_common else ""
    if n_common == len(low):
        return prefix.rstrip()
    return prefix + _differing(low[n_common:], high[n_common:])


def _differing(low: str, high: str) -> str:
    """Where low < high differ in their first digit."""
    first, last, n_rest = int(low[0]), int(high[0]), len(low) - 1
    if n_rest == 0:
        return _digits(first, last)
    parts = []
    if low[1:].strip("0"):
        parts.append(f'"{first}" {_group(low[1:], "9" * n_rest)}')
        first += 1
    tail = None
    if high[1:].strip("9"):
        tail = f'"{last}" {_group("0" * n_rest, high[1:])}'
        last -= 1
    if first <= last:
        parts.append(f"{_digits(first, last)} {_any_digits(n_rest)}")
    if tail:
        parts.append(tail)
    return f"({' | '.join(parts)})"


def _group(low: str, high: str) -> str:
    return f"({_same_length(low, high)})"


def _digits(first: int, last: int) -> str:
    return f"[{first}]" if first == last else f"[{first}-{last}]"


def _any_digits(n: int) -> str:
    return "[0-9]" if n == 1 else f"[0-9]{{{n}}}"
