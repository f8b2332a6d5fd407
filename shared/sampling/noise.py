"""The noise that lead and backs share: Gumbel variables that anyone can compute from (seed, position, token).

Drafter-invariant speculative decoding (Daliri, Musco, Suresh, arXiv 2408.07978): two parties who sample
from *different* distributions with the *same* noise often choose the same token. The noise is keyed,
never drawn in call order, so no race between machines can change it.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_FACTOR_1 = 0xBF58476D1CE4E5B9
_FACTOR_2 = 0x94D049BB133111EB
_MASK = (1 << 64) - 1

# Arrays of no dimension: numpy takes them in half the time that it needs for a number.
_GOLDEN_U64, _FACTOR_1_U64, _FACTOR_2_U64, _11, _27, _30, _31 = (
    np.array(value, np.uint64) for value in (_GOLDEN, _FACTOR_1, _FACTOR_2, 11, 27, 30, 31)
)
_HALF, _UNIT = np.array(0.5), np.array(2.0**-53)

_CHUNK = 1 << 14
"""The number of tokens per block, whose intermediate results fit into the CPU's cache."""

_NO_TOKEN = 1 << 32
"""A place in the stream after the places of all tokens, whose ids have 31 bits."""

_HANDFUL = 8
"""Up to this many tokens, Python's integers are faster than a dozen calls of numpy."""

_SLACK = 1e-6
"""A margin far above the rounding errors of a logarithm of a logarithm."""


def gumbel(seed: int, position: int, tokens: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return `g(seed, position, token) = -ln(-ln u)`, with u uniform in (0, 1), for each of `tokens`.

    seed and position are taken modulo 2**64. The result is finite, because u stays at least 2**-54 away from
    0 and 1.
    """
    start = _first_state(seed, position)
    if len(tokens) <= _HANDFUL:
        return _gumbel(np.array([_unit(_bits_int(start, token)) for token in tokens.tolist()]))
    if len(tokens) <= _CHUNK:
        return _gumbel(_units(tokens, start))
    noise = np.empty(len(tokens))
    for at in range(0, len(tokens), _CHUNK):
        noise[at : at + _CHUNK] = _gumbel(_units(tokens[at : at + _CHUNK], start))
    return noise


def uniform(seed: int, position: int) -> float:
    """Return a uniform number in (0, 1) for this position, independent of the noise of its tokens."""
    return _unit(_bits_int(_first_state(seed, position), _NO_TOKEN))


def exceeding(seed: int, position: int, n_tokens: int, bound: float) -> NDArray[np.intp]:
    """Return all tokens below `n_tokens`, ascending, whose noise is at least `bound`, and possibly a few
    others.

    Takes no logarithms: the noise is monotonic in the bits that it is made of, so these bits are compared
    with the bits of `bound`.
    """
    share_below = math.exp(-math.exp(min(_SLACK - bound, 99.0)))  # P[g < bound - _SLACK]
    # The last step of the mix leaves the upper 31 bits as they are, so it need not be taken.
    limit = np.uint64(min(int(share_below * 2**31), 2**31 - 1) << 33)
    steps = _stream(min(n_tokens, _CHUNK))
    start = _first_state(seed, position)
    found = []
    for at in range(0, n_tokens, _CHUNK):
        states = steps[: n_tokens - at] + np.uint64((start + at * _GOLDEN) & _MASK)
        found.append((_mix_upper(states) >= limit).nonzero()[0] + at)
    return np.concatenate(found)


def _first_state(seed: int, position: int) -> int:
    """Return the first state of the stream of (seed, position): token t gets number t + 1 of the stream.

    The generator is SplitMix64 (Steele, Lea, Flood 2014).
    """
    return (_mix_int(_mix_int(seed) + position * _GOLDEN) + _GOLDEN) & _MASK


def _bits_int(start: int, token: int) -> int:
    return _mix_int(start + token * _GOLDEN) >> 11


def _unit(bits: int) -> float:
    """Return 53 random bits as a number in (0, 1)."""
    return (bits + 0.5) * 2.0**-53


def _units(tokens: NDArray[np.integer[Any]], start: int) -> NDArray[np.float64]:
    """Return the `_unit` of each token."""
    bits = tokens.astype(np.uint64)
    bits *= _GOLDEN_U64
    bits += np.uint64(start)
    _mix_upper(bits)
    bits ^= bits >> _31
    bits >>= _11
    u = bits.astype(np.float64)
    u += _HALF
    u *= _UNIT
    return u


@functools.lru_cache(maxsize=4)
def _stream(n: int) -> NDArray[np.uint64]:
    """Return the distance of each of the first `n` tokens' states from the state of token 0."""
    steps = np.arange(n, dtype=np.uint64) * _GOLDEN_U64
    steps.flags.writeable = False
    return steps


def _gumbel(u: NDArray[np.float64]) -> NDArray[np.float64]:
    for _ in range(2):
        np.log(u, out=u)
        np.negative(u, out=u)
    return u


def _mix_int(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * _FACTOR_1) & _MASK
    value = ((value ^ (value >> 27)) * _FACTOR_2) & _MASK
    return value ^ (value >> 31)


def _mix_upper(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Do all steps of `_mix_int` except the last for each value; overwrites `values`."""
    values ^= values >> _30
    values *= _FACTOR_1_U64
    values ^= values >> _27
    values *= _FACTOR_2_U64
    return values
