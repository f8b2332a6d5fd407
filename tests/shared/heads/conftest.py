import numpy as np

from tests.shared.llama.conftest import loaded, model, three_slots  # noqa: F401 - fixtures


def rows(states, slot, n):
    """The hidden states of the first tokens in a slot."""
    return np.array([states.state(slot, position) for position in range(n)])
