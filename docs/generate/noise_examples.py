"""Values of the shared noise that an implementation in another language can check itself against."""

import numpy as np

from docs.generate.blocks import table
from shared.sampling.noise import gumbel

_EXAMPLES = [(0, 0, 0), (1, 0, 0), (1, 7, 0), (1, 7, 1), (42, 100, 4095), (2**63 - 1, 131_071, 151_642)]


def noise_examples() -> str:
    """A table of (seed, position, token) and g."""
    rows = [
        [str(seed), str(position), str(token), f"{gumbel(seed, position, np.array([token]))[0]:.12f}"]
        for seed, position, token in _EXAMPLES
    ]
    return table(["seed", "position", "token", "g"], rows)
