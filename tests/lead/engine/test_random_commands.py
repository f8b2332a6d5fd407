"""Clients that do anything at any moment, against an engine between fakes (`tests/random_commands.py`).

`RANDOM_COMMANDS=5000` runs 5000 seeds in all, which takes three to four minutes. A failure names its seed,
which can be run again with `RandomRun(seed, room).run()`.
"""

import functools
import os

import pytest

from lead.engine.events import Committed, Started
from tests.random_commands import ROOMS, RandomRun

_N_RUNS = int(os.environ.get("RANDOM_COMMANDS", "100"))
_N_WATCHED = 2
"""The number of seeds in each room that must meet the dangerous cases."""


@functools.cache
def watched(seed, room):
    """A run that has ended."""
    run = RandomRun(seed, room)
    run.run()
    return run


@pytest.mark.parametrize("room", ROOMS)
def test_every_text_is_right_and_nobody_waits_for_ever(room):
    for seed in range(-(-_N_RUNS // len(ROOMS))):
        try:
            watched(seed, room) if seed < _N_WATCHED else RandomRun(seed, room).run()
        except Exception as error:
            raise AssertionError(f"seed {seed} of {room!r}: {type(error).__name__}: {error}") from error


# The runs prove something only if what is dangerous happens in them.


def leaves_before_its_first_token(run):
    front = run.front
    return any(
        sequence in front._n_cached and len(text) == len(front.requests[sequence].tokens)
        for sequence, text in front.texts.items()
        if sequence not in front.reasons
    )


def drafts_itself(run):
    inline = run._engine.speculation.inline
    return inline is not None and inline.describe()["n_tokens"] > 0


DANGERS = {
    "a client leaves between its start and its first token": leaves_before_its_first_token,
    "a text is loaded, or a state": lambda run: run.target.n_loaded > 0,
    "a text comes from disk": lambda run: run.files.n_read > 0,
    "a file is lost or damaged": lambda run: run.files.n_failed > 0,
    "the loop goes on while a device computes": lambda run: run.target.n_overlapped > 0,
    "a plan waits": lambda run: len(run.front.waits) > 0,
    "the engine drafts itself": drafts_itself,
    "a draft is taken back": lambda run: any(step.rejected for step in run.front.of(Committed)),
    "a step finds no room": lambda run: run.target.n_failed > 0,
    "a sequence steps back": lambda run: any(each.again for each in run.front.of(Started)),
    "a context is shifted": lambda run: max(map(len, run.front.texts.values())) > run.limits.n_ctx_sequence,
    "images are read": lambda run: run.target.n_images > 3,
    "nothing is to be generated": lambda run: any(
        run.front.requests[sequence].max_tokens == 0 for sequence in run.front.reasons
    ),
}


def test_what_is_dangerous_happens():
    runs = [watched(seed, room) for seed in range(_N_WATCHED) for room in ROOMS]
    assert [danger for danger, happens in DANGERS.items() if not any(map(happens, runs))] == []
