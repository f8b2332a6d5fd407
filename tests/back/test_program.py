import asyncio
import os
import signal

import pytest

from back import program
from back.dial import OtherVocabularyError, RefusedError
from back.settings import BackSettings


class Loop:
    """Records the handlers that are removed and the calls that are scheduled."""

    def __init__(self):
        self.removed = []
        self.later = []

    def remove_signal_handler(self, number):
        self.removed.append(number)

    def call_later(self, seconds, call, *arguments):
        self.later.append((seconds, call, arguments))


@pytest.fixture
def kept_handlers():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("kept_handlers")
async def test_a_second_signal_ends_it_at_once_and_the_first_in_some_seconds():
    loop, following = Loop(), asyncio.get_running_loop().create_future()
    program._end(loop, following)
    assert following.cancelled()
    assert set(loop.removed) == {signal.SIGINT, signal.SIGTERM}
    assert {signal.getsignal(number) for number in loop.removed} == {signal.SIG_DFL}
    assert loop.later == [(3.0, os._exit, (0,))]


async def test_without_a_ring_that_translates_a_lead_of_another_vocabulary_is_given_up(monkeypatch):
    async def refused(*_):
        raise OtherVocabularyError("vocabularies differ")

    monkeypatch.setattr(program, "RINGS", ())
    monkeypatch.setattr(program.leads, "follow", refused)
    with pytest.raises(RefusedError, match=r"vocabularies differ\. The back cannot translate: .* installed"):
        await program._follow(BackSettings(), None, None, None, None)
