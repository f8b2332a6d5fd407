import asyncio
import random

import pytest

from back import leads
from back.dial import OtherVocabularyError, RefusedError
from back.leads import follow_all
from back.link import LostError
from shared.errors import ConfigError, NoLeadError, SeveralLeadsError


class Network:
    """Settings of a back whose searches give the entries of `looks` by turns: a lead or an error."""

    def __init__(self, *looks, url="first"):
        self.looks = list(looks)
        self.url = url

    @property
    def websocket_url(self):
        return f"ws://{self.url}"

    def discovered(self, *, again=False):
        self.again = again
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return Network(*self.looks, url=look)

    def tls(self):
        return None


def none():
    return NoLeadError("no lead is announced")


def several():
    return SeveralLeadsError("there are several leads")


def test_it_looks_until_there_is_a_lead():
    pauses = []
    network = Network(none(), none(), none(), "lead")
    assert leads.find(network, random.Random(1), pauses.append).websocket_url == "ws://lead"
    assert len(pauses) == 3
    assert pauses == sorted(pauses)


def test_that_there_is_none_is_said_once(caplog):
    caplog.set_level("INFO", "back")
    leads.find(Network(none(), none(), "lead"), random.Random(1), lambda _: None)
    assert caplog.messages == ["no lead is announced. Searching until a lead is found"]


def test_of_several_leads_a_person_has_to_choose():
    with pytest.raises(SeveralLeadsError, match="several"):
        leads.find(Network(several()), random.Random(1))


class EndingLink:
    """A link whose runs end with these errors, one after the other."""

    def __init__(self, *ends):
        self.ends = list(ends)
        self.dialled = ["ws://first"]

    async def run(self, _worker):
        raise self.ends.pop(0)

    def set_lead(self, url, _tls):
        self.dialled.append(url)


LOST, REFUSED, ENDED = LostError("away"), RefusedError("refused"), ConfigError("the test ends")


async def follow(network, *ends):
    """The addresses that a back with these settings dials, until its link has ended with all these errors."""
    link = EndingLink(*ends)
    with pytest.raises(type(ends[-1]), match=str(ends[-1])):
        await leads.follow(network, link, None)
    return link.dialled


async def test_a_lead_that_is_lost_is_looked_for_again():
    network = Network("second", none(), "third")
    assert await follow(network, LOST, LOST, LOST, ENDED) == ["ws://first", "ws://second", "ws://third"]
    assert network.again


async def test_a_second_announcement_does_not_end_a_running_back(caplog):
    caplog.set_level("INFO", "back")
    dialled = await follow(Network(several(), several(), "first"), LOST, LOST, LOST, ENDED)
    assert dialled == ["ws://first", "ws://first"]
    assert caplog.messages == ["there are several leads. Searching until a lead is found"]


async def test_another_lead_that_refuses_a_running_back_does_not_end_it():
    dialled = await follow(Network("other"), LOST, REFUSED, ENDED)
    assert dialled == ["ws://first", "ws://other", "ws://first"]


@pytest.mark.parametrize("looks", [(), ("first",), ("other", "first")])
async def test_the_first_lead_may_refuse_a_back_for_good(looks):
    await follow(Network(*looks), *[LOST for _ in looks], REFUSED)


class ScriptedLink:
    def __init__(self, error=None):
        self._error = error
        self.lead = None

    async def run(self, _worker, lead):
        self.lead = lead
        if self._error:
            raise self._error
        await asyncio.Event().wait()


async def test_every_lead_is_followed_under_its_own_number():
    links = [ScriptedLink(), ScriptedLink()]
    following = asyncio.ensure_future(follow_all(links, None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [link.lead for link in links] == [0, 1]
    following.cancel()


async def test_a_lead_that_refuses_leaves_the_others(caplog):
    links = [ScriptedLink(OtherVocabularyError("vocabularies differ")), ScriptedLink()]
    following = asyncio.ensure_future(follow_all(links, None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not following.done()
    assert "vocabularies differ. A back can translate for one lead only" in caplog.text
    following.cancel()


async def test_it_ends_when_all_have_refused():
    links = [ScriptedLink(RefusedError("no key")), ScriptedLink(RefusedError("no key, either"))]
    with pytest.raises(RefusedError, match="every lead has refused this back: no key"):
        await follow_all(links, None)
