"""`python -m bench precision`: `bench speed` by how the target's weights are stored, and by draft depth.

Tokens/s without a back and with drafts of each length (policy sync, as the classical tables have it).
"""

from collections.abc import Sequence

from bench import speed

_DEFAULTS = {
    "targets": ["0.4G:f16", "0.4G:q8_0", "0.4G:q4_0", "0.4G:f32"],
    "draft_costs": ["shipped"],
    "policies": ["sync"],
}
_QUICK = {
    "targets": ["0.4G:f16", "0.4G:q8_0"],
    "depths": [2, 4],
    "repeats": 1,
    "kinds": ["stories", "knowledge"],
    "tokens": 32,
}


def main(arguments: Sequence[str]) -> None:
    """Measure, print a table for each type, and one line of JSON."""
    speed.run("precision", arguments, _DEFAULTS, _QUICK)
