"""The k largest of many values, at the cost of reading the values once or twice.

`np.argpartition` over a vocabulary moves every value; here all but a few hundred are only compared.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FEW = 64
"""Up to this many values are sorted directly."""


def top_k(values: NDArray[np.floating[Any]], k: int) -> NDArray[np.intp]:
    """Indices of the `k` largest values, or of all if there are fewer.

    The largest comes first; of equal values the one with the lowest index. values: shape (n,), not modified.
    A NaN counts as less than every number.
    """
    n = len(values)
    if k <= 0:
        return np.empty(0, np.intp)
    if n <= _FEW or n < 4 * k:
        return _in_order(values)[:k]
    candidates, bound = candidates_for_top_k(values, k)
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


def _kth_largest(values: NDArray[np.floating[Any]], least: float, k: int) -> float:
    """The k-th largest of at least `k` values, none of which is below `least`."""
    above = values[values > least]
    # Where most values are equal, such as those of tokens that cannot follow, they are not moved.
    return float(np.partition(above, len(above) - k)[len(above) - k]) if len(above) >= k else least


def candidates_for_top_k(values: NDArray[np.floating[Any]], k: int) -> tuple[NDArray[np.intp], float]:
    """(indices, bound): ascending indices of all values ≥ bound, a bound that at least `k` values reach.

    0 < k ≤ len(values). The bound is the k-th largest of the maxima of about √(n k) groups of values: each of
    these maxima is a value. With NaNs among the values there may be fewer than `k`, or none.
    """
    n_rows = math.isqrt(len(values) // k)
    n_groups = len(values) // n_rows
    # A group is a column: the maximum of whole rows is several times as fast as that within each row.
    maxima = np.maximum.reduce(values[: n_rows * n_groups].reshape(n_rows, n_groups), axis=0)
    maxima.partition(n_groups - k)
    bound = maxima[n_groups - k]
    return (values >= bound).nonzero()[0], float(bound)


def _in_order(values: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    return (-values).argsort(kind="stable")
