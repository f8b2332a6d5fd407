"""Which tests run: those that `pytest -m` selects, but for what needs more than a checkout and minutes."""

import re

LEFT_OUT = ("clients", "downloads", "gpu", "models", "ray", "routers")
"""Markers of tests that run only if `-m` names them."""


def selection(expression):
    """The expression of `-m` and what it leaves out, for another `-m`; the same for its own result."""
    unnamed = [marker for marker in LEFT_OUT if marker not in re.findall(r"\w+", expression)]
    return " and ".join([f"({expression})"] * bool(expression) + [f"not {marker}" for marker in unnamed])
