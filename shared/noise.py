"""The noise that lead and backs share: Gumbel variables that anyone can compute from (seed, position, token).

Drafter-invariant speculative decoding (Daliri, Musco, Suresh, arXiv 2408.07978): two parties who sample
from *different* distributions with the *same* noise often choose the same token. The noise is keyed,
never drawn in call order, so no race between machines can change it.
"""

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def gumbel(seed: int, position: int, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """`g(seed, position, token) = -ln(-ln u)` with u uniform in (0, 1), one for each of `tokens`.

    `seed` and `position` are taken modulo 2**64. The result is finite: u stays 2**-54 away from 0 and 1.
    """
    key = _mix_int(_mix_int(seed) + position * _GOLDEN)
    # SplitMix64 (Steele, Lea, Flood 2014): output number `token + 1` of the stream that starts at `key`.
    state = np.uint64(key) + (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
    bits = _mix_array(state) >> np.uint64(11)
    u = (bits.astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(-np.log(-np.log(u)))


def _mix_int(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
