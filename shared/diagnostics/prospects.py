"""Predicts, from the times of the target's steps, whether drafts from other machines pay, and says so in
sentences.

Gains are simulated with published T(n), for an acceptance of .6 or .7 (docs/generate/figures.toml). Real
pairs and networks differ.
"""

import enum
from collections.abc import Mapping

_SHORT_S, _LONG_S = 0.010, 0.100
"""Two values of T(1) in seconds. Above the first, a back has some of the time that its drafts need, and above
the second, all of it.
"""
_MIN_GAIN = 1.15
"""The minimum of `best_gain` for a speed-up: if the gain is less, late and wrong drafts use it up."""
TYPICAL_ACCEPTANCE = 0.7
_RAM_BYTES = 4 << 30
"""The number of bytes of weights that a desktop reads in about `_LONG_S`, at 40 GB/s."""


class Prospect(enum.Enum):
    """The gain to expect from drafts. The values are sentences that need no more context."""

    SHORT = (
        "Steps are shorter than 10 ms. Drafts from another machine give a speed-up of only 1.0 to "
        "1.3 here. Draft in the engine (--draft-model, --mtp), or not at all."
    )
    MEDIUM = (
        "Steps take 10 to 100 ms. A fast back needs less than a fifth of a step per token. It "
        "gives a speed-up of 1.6 to 1.7 for steps of at least 25 ms, and up to 1.4 for shorter "
        "steps. A slower back gives at most 1.5."
    )
    LONG = (
        "Steps take 100 ms or more, as with layers in RAM or on a CPU. Backs help most here: they "
        "give a speed-up of 1.5 to 2.4 if they draft faster than the lead generates."
    )
    STEEP = (
        "Verifying several tokens takes nearly as long as generating them. This is usual for "
        "mixtures of experts, for K-quants on Metal, and for 4-bit or 8-bit weights on a few CPU "
        "cores. Drafts rarely give a speed-up above 1.2 here."
    )
    UNKNOWN = (
        "The speed-up depends on the time of a step. A back on another machine gives little "
        "for steps below 10 ms, and most with layers in RAM. `lead plan` measures the speed-up."
    )


SLOW_BACK = 0.3
"""The ratio of a draft token's time to T(1) above which a faster draft model is likely to give more."""
SLOWER_BACK = (
    "A faster draft model can help more even if fewer tokens are accepted. In a simulation with "
    "steps of 118 ms, a draft model with 30 ms per token and an acceptance of 70 % gave a speed-up of "
    "1.56. A model with 80 ms and 80 % gave only 1.18."
)
SECOND_BACK = (
    "A second machine should run another draft model with about the same acceptance, not the same "
    "model again."
)


def best_gain(step_s: Mapping[int, float], acceptance: float = TYPICAL_ACCEPTANCE) -> tuple[float, int]:
    """Return (gain, n): the highest speed-up of steps of n tokens over steps of one, with all drafts in time.

    step_s: T(n) in any unit, for n = 1 and others. acceptance: the probability that a draft token is right.
    """
    tokens = {n: sum(acceptance**i for i in range(n)) for n in step_s if n > 1}
    gains = {n: expected * step_s[1] / step_s[n] for n, expected in tokens.items()}
    n = max(gains, key=lambda each: gains[each])
    return gains[n], n


def prospect(step_s: Mapping[int, float]) -> Prospect:
    """Return the prospect for T(n) in seconds; UNKNOWN without T(1) and T(n) of a larger step."""
    if 1 not in step_s or len(step_s) == 1:
        return Prospect.UNKNOWN
    if best_gain(step_s)[0] < _MIN_GAIN:
        return Prospect.STEEP
    if step_s[1] < _SHORT_S:
        return Prospect.SHORT
    return Prospect.MEDIUM if step_s[1] < _LONG_S else Prospect.LONG


def prospect_of_weights(ram_bytes: int, *, is_mixture: bool, has_metal_k_quants: bool) -> Prospect:
    """Return the prospect before any measurement. ram_bytes: the bytes of weights with which the CPU computes
    each token.
    """
    if is_mixture or has_metal_k_quants:
        return Prospect.STEEP
    return Prospect.LONG if ram_bytes >= _RAM_BYTES else Prospect.UNKNOWN
