"""Finds the k largest of many values, in one pass over the values, or in two passes if there are fewer than
`_MANY`.

`np.argpartition` over a vocabulary moves every value; here all but a few hundred values are only compared.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FEW = 64
"""Up to this many values are sorted directly."""
_MANY = 1 << 15
"""From this many values on, reading them a second time takes longer than a dozen calls of numpy."""


def top_k(values: NDArray[np.floating[Any]], k: int, offset: np.float32 | None = None) -> NDArray[np.intp]:
    """Return the indices of the `k` largest values, or of all if there are fewer.

    The largest comes first; of equal values, the one with the lowest index. values: shape (n,), not modified.
    A NaN counts as less than every number. offset: if all other values are below the largest plus this, only
    the largest may be returned.
    """
    n = len(values)
    if k <= 0:
        return np.empty(0, np.intp)
    if n <= _FEW or n < 4 * k:
        return _in_order(values)[:k]
    groups, maxima = _grouped(values, k)
    if offset is not None and (alone := _alone(values, groups, maxima, offset)) is not None:
        return np.array([alone])
    candidates, bound = _reaching(values, groups, maxima, k)
    if len(candidates) < k:  # NaNs
        return _in_order(values)[:k]
    left = values[candidates]
    if len(candidates) > 4 * k:  # many equal values, or an order that is unlucky for the bound
        kth = _kth_largest(left, bound, k)
        above, equal = candidates[left > kth], candidates[left == kth]
        candidates = np.concatenate((above, equal[: k - len(above)]))
        left = values[candidates]
    # Candidates of equal value are in ascending order, and a stable sort leaves them so.
    return candidates[(-left).argsort(kind="stable")[:k]]


def _kth_largest(values: NDArray[np.floating[Any]], minimum: float, k: int) -> float:
    """Return the k-th largest of at least `k` values, none of which is below `minimum`."""
    above = values[values > minimum]
    # Where most values are equal, such as those of tokens that cannot follow, they are not moved.
    return float(np.partition(above, len(above) - k)[len(above) - k]) if len(above) >= k else minimum


def candidates_for_top_k(values: NDArray[np.floating[Any]], k: int) -> tuple[NDArray[np.intp], float]:
    """Return (indices, bound): the ascending indices of all values ≥ bound.

    At least `k` values reach the bound. 0 < k ≤ len(values). The bound is the k-th largest of the maxima of
    about √(n k) groups of values: each of these maxima is a value. With NaNs among the values there may be
    fewer than `k` indices, or none.
    """
    groups, maxima = _grouped(values, k)
    return _reaching(values, groups, maxima, k)


def _grouped(
    values: NDArray[np.floating[Any]], k: int
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Return (groups, maxima): each column is a group of values, with its maximum; the last few values may be
    missing.

    The maximum of whole rows is several times as fast as the maximum within each row.
    """
    n_rows = _n_rows(len(values), k)
    n_groups = len(values) // n_rows
    groups = values[: n_rows * n_groups].reshape(n_rows, n_groups)
    return groups, np.maximum.reduce(groups, axis=0)


@functools.lru_cache(maxsize=64)
def _n_rows(n: int, k: int) -> int:
    """Return the number of values in a group, preferably a number that leaves no values over."""
    bound = math.isqrt(n // k)
    return next((n_rows for n_rows in range(bound, bound // 2, -1) if n % n_rows == 0), bound)


def _alone(
    values: NDArray[np.floating[Any]],
    groups: NDArray[np.floating[Any]],
    maxima: NDArray[np.floating[Any]],
    offset: np.float32,
) -> int | None:
    """Return the index of the largest value, if all others are below it plus `offset`; None: there is no such
    value, or (rarely) it is not recognized.
    """
    column = int(maxima.argmax())
    threshold = maxima[column] + offset
    if len((maxima >= threshold).nonzero()[0]) != 1:
        return None
    rows = (groups[:, column] >= threshold).nonzero()[0]
    if len(rows) != 1:
        return None
    if groups.size < len(values) and (values[groups.size :] >= threshold).any():
        return None
    return int(rows[0]) * len(maxima) + column


def _reaching(
    values: NDArray[np.floating[Any]],
    groups: NDArray[np.floating[Any]],
    maxima: NDArray[np.floating[Any]],
    k: int,
) -> tuple[NDArray[np.intp], float]:
    """See `candidates_for_top_k`."""
    n_groups = len(maxima)
    ordered = maxima.copy()
    ordered.partition(n_groups - k)
    bound = ordered[n_groups - k]
    some = (~(maxima < bound)).nonzero()[0]  # a NaN may hide larger values of its group
    if len(values) < _MANY or 4 * len(some) > n_groups:
        return (values >= bound).nonzero()[0], float(bound)
    rows, columns = divmod((groups.take(some, axis=1).ravel() >= bound).nonzero()[0], len(some))
    found = rows * n_groups + some[columns]
    if groups.size < len(values):
        last = (values[groups.size :] >= bound).nonzero()[0]
        found = np.concatenate((found, last + groups.size))
    return found, float(bound)


def _in_order(values: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    return (-values).argsort(kind="stable")
