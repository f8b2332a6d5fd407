"""The stream of answers that every API shows in its own format."""

import asyncio
import contextlib
import tracemalloc

import pytest

from lead.chat_format.deltas import Content
from lead.engine.events import Committed, Started
from lead.engine_client.answer_stats import RequestStats, current_request
from lead.http.answers import answer_updates, whole_answers
from lead.http.generation_request import GenerationRequest
from shared.errors import QueueFullError
from tests.toy_engine import submit


def asked(lead, *prompts, stops=()):
    """A request to continue some prompts, and the services that do this."""
    submissions = [submit(tokens=lead.tokens(prompt)) for prompt in prompts or ("Once",)]
    return GenerationRequest(submissions, stops), lead.app.state.services


async def test_text_that_is_not_parsed_is_content(lead):
    lead.will_say("<think>", "Hm")
    updates = [update async for update in answer_updates(*asked(lead))]
    assert all(update.deltas == [Content(update.text)] for update in updates if update.text)


async def test_a_stream_keeps_a_few_bytes_of_each_token_however_long_it_is(lead):
    lead.will_say(*[("once ", {"n_accepted": 1, "sources": ["ngram"]})] * 1500)
    n_tokens, n_read, at = len(lead.tokens("once ")), 0, {}
    tracemalloc.start()
    async for update in answer_updates(*asked(lead)):
        n_read += bool(update.n_drafted)
        if n_read in {500, 1500}:
            at[n_read] = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert (at[1500] - at[500]) / (1000 * n_tokens) < 16


async def test_an_answer_that_a_stop_string_ended_is_cancelled_while_others_go_on(lead):
    lead.will_say("one. two")
    lead.engine.pause_after = 4
    updates = answer_updates(*asked(lead, "a", "b", stops=["."]))
    async for update in updates:
        if update.end:
            break
    assert lead.engine.cancelled == [lead.engine.submitted[update.index].sequence]
    await updates.aclose()


async def test_a_stream_that_is_closed_early_cancels_all_its_answers(lead):
    lead.will_say("one two")
    lead.engine.pause_after = 1
    updates = answer_updates(*asked(lead, "a", "b"))
    await anext(updates)
    await updates.aclose()
    assert lead.engine.cancelled == [request.sequence for request in lead.engine.submitted]
    assert list(lead.sequences) == []


async def test_where_one_answer_cannot_begin_none_is_left_running(lead, monkeypatch):
    submit = lead.engine.submit

    def refuse_second(request, **more):
        if lead.engine.submitted:
            raise QueueFullError("x")
        return submit(request, **more)

    monkeypatch.setattr(lead.engine, "submit", refuse_second)
    with pytest.raises(QueueFullError):
        await whole_answers(*asked(lead, "a", "b"))
    assert list(lead.sequences) == []


async def test_what_all_answers_took_is_counted_for_the_log(lead):
    stats = RequestStats("r")
    current_request.set(stats)
    lead.engine.steps = [([5, 6], {})]
    await whole_answers(*asked(lead, "a", "b"))
    assert (stats.n_sequences, stats.n_generated) == (2, 4)


async def test_nothing_is_submitted_before_the_stream_is_read(lead):
    async with contextlib.aclosing(answer_updates(*asked(lead))):
        await asyncio.sleep(0)
    assert lead.engine.submitted == []


async def test_an_answer_that_a_stop_string_ended_stays_whole_when_the_engine_dies_with_it(lead):
    lead.engine.hold()
    updates = answer_updates(*asked(lead, stops=["."]))
    reading = asyncio.ensure_future(anext(updates))
    await lead.engine.submission.wait()
    (sequence,) = lead.sequences
    lead.sequences.apply(Started(sequence=sequence.id, n_cached=0), 1.0)
    step = Committed(sequence=sequence.id, start=len(sequence.tokens), tokens=lead.tokens("one. two"))
    lead.sequences.apply(step, 2.0)
    lead.sequences.fail_all("the engine has died")  # before the tokens have been read
    read = [await reading, *[update async for update in updates]]
    assert "".join(update.text for update in read) == "one"
    assert (read[-1].end.reason, read[-1].end.stop_string) == ("stop", ".")
