"""An answer of two context lengths and more: the same text with a back, beside others, in another engine."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.processes import start_lead
from tests.real.client import ask, stream
from tests.real.processes import LEAD, back_of, engine_of

pytestmark = pytest.mark.real

N_CTX = 128
N_TOKENS = 2 * N_CTX + 40
LONG = {"temperature": 0.8, "max_tokens": N_TOKENS, "repeat_penalty": 1.1, "n_keep": 12}


@pytest.fixture(scope="module")
def lead(target):
    # Waiting for drafts: a quick lead could be done before its back has begun.
    waiting = ("--policy", "sync", "--depth", "3")
    program, url = start_lead("--model", str(target), *LEAD, "-c", str(N_CTX), "--context-shift", *waiting)
    with program:
        yield program, url


@pytest.fixture(scope="module")
def plain(lead):
    reply = ask(lead[1], **LONG)
    assert (reply.n_generated, reply.finish_reason) == (N_TOKENS, "length")
    return reply


@pytest.mark.parametrize("n_windows", [1, 4])
def test_a_back_is_accepted_after_every_shift_and_changes_nothing(lead, plain, n_windows):
    program, url = lead
    with (
        back_of(program, url, "helper", "--ctx-size", str(N_CTX), "--parallel", str(n_windows)),
        stream(url, **LONG) as answer,
    ):
        for length in (N_CTX, 2 * N_CTX):
            n = len(plain.text) * length // N_TOKENS
            answer.until(lambda reply, n=n: len(reply.text) > n)
            answer.reply.sources.clear()
        reply = answer.rest()
    assert reply.text == plain.text
    assert reply.sources == {"helper"}


def test_an_engine_that_dies_after_a_shift_is_followed_by_one_that_continues_the_text(lead, plain):
    program, url = lead
    with back_of(program, url, "helper"), stream(url, **LONG) as answer:
        for part in (0.4, 0.8):
            answer.until(lambda reply, part=part: len(reply.text) > part * len(plain.text))
            os.kill(engine_of(program), signal.SIGKILL)
        reply = answer.rest()
    assert (reply.text, reply.error) == (plain.text, None)


def test_two_that_do_not_fit_beside_each_other_take_turns(lead, plain):
    program, url = lead
    with back_of(program, url, "helper"), ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(ask, url, **LONG) for _ in range(2)]
        assert [answer.result().text for answer in answers] == [plain.text] * 2
