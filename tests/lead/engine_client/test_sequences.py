import asyncio

import pytest

from lead.engine.events import Committed, Failed, Finished, Started
from lead.engine_client.sequences import Broadcast, Sequences
from shared.errors import RequestError, ServerError, UnavailableError
from shared.image_span import ImageSpan, row_identities
from tests.toy_engine import submit


class Observer:
    def __init__(self):
        self.seen = []

    def on_step(self, sequence, step):
        self.seen.append((sequence.id, step.tokens))

    def on_end(self, sequence):
        self.seen.append((sequence.id, sequence.finish_reason))


@pytest.fixture
def sequences():
    return Sequences()


@pytest.fixture
def running(sequences):
    sequence = sequences.create(submit(tokens=[1, 2]))
    sequences.apply(Started(sequence=sequence.id, n_cached=1), 10.0)
    return sequence


def commit(sequences, sequence, tokens, now=11.0):
    sequences.apply(Committed(sequence=sequence.id, start=len(sequence.tokens), tokens=tokens), now)


def test_ids_are_unguessable_and_used_once(sequences):
    ids = {sequences.create(submit(tokens=[1])).id for _ in range(100)}
    assert len(ids) == 100
    assert min(map(len, ids)) == 32


def test_steps_are_dropped_once_they_are_taken(sequences, running):
    commit(sequences, running, [3])
    commit(sequences, running, [4])
    assert [step.tokens for step in running.take_steps()] == [[3], [4]]
    assert running.take_steps() == []


def test_a_step_that_does_not_follow_is_a_bug(sequences, running):
    with pytest.raises(RuntimeError, match="starts at 7, expected 2"):
        sequences.apply(Committed(sequence=running.id, start=7, tokens=[3]), 11.0)


def test_a_finished_sequence_is_forgotten_by_all_but_its_readers(sequences, running):
    sequences.apply(Finished(sequence=running.id, reason="stop"), 12.0)
    assert sequences.get(running.id) is None
    assert (running.ended, running.finish_reason) == (True, "stop")


def test_events_for_a_discarded_sequence_are_ignored(sequences, running):
    sequences.discard(running)
    commit(sequences, running, [3])
    assert running.tokens.tolist() == [1, 2]


def test_when_the_engine_dies_every_sequence_fails_with_the_reason(sequences, running):
    queued = sequences.create(submit(tokens=[1]))
    sequences.fail_all("it died")
    assert {(s.ended, str(s.failure)) for s in (running, queued)} == {(True, "it died")}
    assert list(sequences) == []


@pytest.mark.parametrize(
    ("why", "kind"),
    [({"param": "grammar"}, RequestError), ({}, ServerError), ({"may_recover": True}, UnavailableError)],
)
def test_a_sequence_that_cannot_go_on_fails_alone(sequences, running, why, kind):
    other = sequences.create(submit(tokens=[1]))
    sequences.apply(Failed(sequence=running.id, reason="it cannot", **why), 1.0)
    assert running.ended
    assert isinstance(running.failure, kind)
    assert list(sequences) == [other]


def test_observers_hear_steps_and_ends_in_order(sequences, running):
    observer = Observer()
    sequences.observe(observer)
    commit(sequences, running, [3])
    sequences.discard(running)
    assert observer.seen == [(running.id, [3]), (running.id, "stop")]


async def test_a_reader_that_takes_the_next_change_first_misses_none(sequences, running):
    change = running.changed.next_change()
    commit(sequences, running, [3])
    async with asyncio.timeout(60):
        await change.wait()


async def test_everyone_who_waits_is_woken():
    broadcast = Broadcast()
    waiting = [asyncio.ensure_future(broadcast.next_change().wait()) for _ in range(3)]
    broadcast.notify()
    async with asyncio.timeout(60):
        assert await asyncio.gather(*waiting) == [True] * 3


def test_tokens_are_counted_without_rows_of_images_and_submitted_with_them(sequences):
    rows = row_identities("a", 3)
    image = ImageSpan(start=1, n_rows=3, n_positions=3, key="a")
    sequence = sequences.create(submit(tokens=[1, *rows, 2], images=(image,)))
    sequences.apply(Started(sequence=sequence.id, n_cached=0), 10.0)
    commit(sequences, sequence, [7, 8])
    assert sequence.tokens.tolist() == [1, 2, 7, 8]
    assert (sequence.n_prompt, sequence.n_generated, sequence.n_tokens) == (5, 2, 7)
    sequences.on_death()
    (again,) = sequences.take_due()
    assert (again.tokens, again.n_prompt, again.images) == ([1, *rows, 2, 7, 8], 5, (image,))
