"""The tests that run: the selection of `pytest -m`, without tests that need more than a checkout and minutes.

With `--short-proofs` only some cases of each proof run.
"""

import itertools
import re

LEFT_OUT = ("agents", "clients", "downloads", "gpu", "models", "ray", "routers")
"""Markers of tests that run only if `-m` names them."""
N_SHORT = 13
"""The most cases of a proof that remain. A prime: otherwise some values of a parameter would never occur."""


def selection(expression):
    """The expression of `-m`, without the markers to leave out. For its own result it changes nothing."""
    unnamed = [marker for marker in LEFT_OUT if marker not in re.findall(r"\w+", expression)]
    return " and ".join([f"({expression})"] * bool(expression) + [f"not {marker}" for marker in unnamed])


def is_proof(item):
    return item.path.name.startswith("test_proof")


def shortened(items):
    """The items with at most N_SHORT cases of each proof, spread evenly, and the items left out."""
    kept, left_out = [], []
    for cases in (list(group) for _, group in itertools.groupby(items, lambda item: item.function)):
        n = min(N_SHORT, len(cases)) if is_proof(cases[0]) else len(cases)
        chosen = {i * len(cases) // n for i in range(n)}
        for i, case in enumerate(cases):
            (kept if i in chosen else left_out).append(case)
    return kept, left_out
