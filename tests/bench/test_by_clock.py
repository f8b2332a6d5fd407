"""Programs whose decodes are timed waits."""

import os
import subprocess
import sys

import pytest

from bench.by_clock import _back_as_measured, _lead_as_measured, _simulate, _waiting
from shared.errors import ConfigError

_DECODE = """
import threading, time
from shared.errors import DecodeAbortedError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.models.builtin import builtin_draft
from shared.settings.model_options import ModelOptions
model = Model(builtin_draft(), ModelOptions(threads=1, ctx_size=256, parallel=1))
interrupt = model.interrupt()
threading.Timer(0.2, interrupt.set).start()
began = time.monotonic()
try:
    model.decode([Span(0, 0, [1, 2], 1)])
    print(time.monotonic() - began)
except DecodeAbortedError:
    print("interrupted")
"""


def decode(role):
    """What a decode of two tokens in a program of this kind says."""
    return subprocess.run(
        [sys.executable, "-c", _DECODE, role], capture_output=True, text=True, check=True
    ).stdout


def test_a_decode_takes_as_long_as_the_table_of_its_program_says():
    with _waiting({1: 20.0, 3: 60.0}, {1: 3_600_000.0}):
        assert float(decode("lead.engine")) >= 0.04


def test_the_wait_of_a_back_can_be_interrupted():
    with _waiting({1: 20.0}, {1: 3_600_000.0}):
        assert decode("back") == "interrupted\n"


def test_afterwards_programs_are_as_before():
    before = dict(os.environ)
    with _waiting({1: 1.0}, {1: 1.0}):
        assert "LEAD_STEP_MS" in os.environ
    assert dict(os.environ) == before


SOURCE = {"n_scored": 40, "n_right": 30, "first_draft_ms": 6.0, "waited_ms": 1.0, "drafted_ms": 4.0}


def test_the_simulated_back_is_as_the_real_one_was():
    spec = _back_as_measured({"sources": {"back-1": SOURCE}})
    assert (spec.step_s, spec.rtt_s, spec.skill.acceptance) == (0.004, 0.001, 0.75)


def test_a_back_that_has_not_drafted_is_an_error():
    with pytest.raises(ConfigError, match="no draft of the first back"):
        _back_as_measured({"sources": {}})


def test_a_simulated_lead_without_backs_is_as_fast_as_the_real_one_was():
    lead, back = _lead_as_measured(0.0314), _back_as_measured({"sources": {"back-1": SOURCE}})
    assert _simulate(lead, back, 0) == pytest.approx(1 / 0.0314, rel=1e-3)
