"""How the cores of this machine can be divided between a lead and a back."""

from collections.abc import Sequence
from typing import NamedTuple

_SHARES = (0.0, 0.25, 0.5)
"""Of the cores, for the back. A draft model is small, and more than half of them would slow the lead down."""


class CoreSplit(NamedTuple):
    """Cores of the lead and of the back."""

    lead: tuple[int, ...]
    back: tuple[int, ...]


def core_splits(cores: Sequence[int], *, lead_is_offloaded: bool = False) -> list[CoreSplit]:
    """The sensible ones, fewest cores for the back first; none of one core.

    A lead on a GPU needs one core.
    """
    n = len(cores)
    if n < 2:  # noqa: PLR2004 - one for each
        return []
    shares = {max(1, round(share * n)) for share in _SHARES}
    n_backs = [n - 1] if lead_is_offloaded else sorted(shares)
    return [CoreSplit(tuple(cores[: n - n_back]), tuple(cores[n - n_back :])) for n_back in n_backs]


def as_ranges(cores: Sequence[int]) -> str:
    """`0-2,5`, as options take them."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][-1] + 1:
            parts[-1].append(core)
        else:
            parts.append([core])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
