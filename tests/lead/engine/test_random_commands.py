"""Clients that do anything at any moment, against an engine between fakes (`tests/random_commands.py`).

`RANDOM_COMMANDS=5000` runs so many seeds in all; a failure names its seed: `RandomRun(seed, room).run()`.
"""

import os

import pytest

from tests.random_commands import ROOMS, RandomRun

_N_RUNS = int(os.environ.get("RANDOM_COMMANDS", "270"))


@pytest.mark.parametrize("room", ROOMS)
def test_every_text_is_right_and_nobody_waits_for_ever(room):
    for seed in range(-(-_N_RUNS // len(ROOMS))):
        try:
            RandomRun(seed, room).run()
        except Exception as error:
            raise AssertionError(f"seed {seed} of {room!r}: {type(error).__name__}: {error}") from error
