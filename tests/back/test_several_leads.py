"""Links to several leads: what happens to one leaves the others alone."""

import asyncio

import pytest

from back.dial import OtherVocabularyError, RefusedError
from back.several_leads import follow_all


class ScriptedLink:
    def __init__(self, error=None):
        self._error = error
        self.listener = None

    async def run(self, listener):
        self.listener = listener
        if self._error:
            raise self._error
        await asyncio.Event().wait()


async def test_every_lead_is_followed_with_its_own_listener():
    links = [ScriptedLink(), ScriptedLink()]
    following = asyncio.ensure_future(follow_all(links, ["a", "b"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [link.listener for link in links] == ["a", "b"]
    following.cancel()


async def test_a_lead_that_refuses_leaves_the_others(caplog):
    links = [ScriptedLink(OtherVocabularyError("vocabularies differ")), ScriptedLink()]
    following = asyncio.ensure_future(follow_all(links, ["a", "b"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not following.done()
    assert "vocabularies differ; to translate, a back has to have one lead only" in caplog.text
    following.cancel()


async def test_it_ends_when_all_have_refused():
    links = [ScriptedLink(RefusedError("no key")), ScriptedLink(RefusedError("no key, either"))]
    with pytest.raises(RefusedError, match="no lead is left: no key"):
        await follow_all(links, ["a", "b"])
