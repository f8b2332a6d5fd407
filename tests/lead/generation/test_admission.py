import pytest

from lead.generation.admission import Admission, ContextExceededError
from shared.errors import QueueFullError
from shared.sampling.parameters import SamplingParameters
from tests.fakes import submit


@pytest.mark.parametrize(
    ("by_default", "asked", "private"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
async def test_a_request_overrides_the_default_for_privacy(lead, by_default, asked, private):
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, private_by_default=by_default)
    assert admission.submit(submit(), private=asked).private == private


@pytest.mark.parametrize(("private", "owner"), [(False, 7), (True, None)])
async def test_later_requests_are_not_drafted_from_a_private_one(lead, private, owner):
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary)
    sequence = admission.submit(submit(owner=7), private=private)
    assert sequence.request.owner == owner


@pytest.mark.parametrize(("n_bytes", "private"), [(900_000, False), (1 << 20, True)])
async def test_a_grammar_larger_than_a_protocol_message_makes_a_sequence_private(lead, n_bytes, private):
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary)
    sampling = SamplingParameters(seed=1, grammar="#" * n_bytes)
    sequence = admission.submit(submit(sampling=sampling, owner=7))
    assert (sequence.private, sequence.request.owner) == (private, 7)


async def test_a_request_beyond_the_queue_is_refused(lead):
    lead.engine.hold()
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, max_queue=2)
    n_slots = lead.engine.ready.n_slots
    sequences = [admission.submit(submit()) for _ in range(n_slots + 2)]
    with pytest.raises(QueueFullError, match="2 more requests wait"):
        admission.submit(submit())
    admission.cancel(sequences[0])
    admission.submit(submit())


async def test_without_a_queue_requests_still_fill_the_slots(lead):
    lead.engine.hold()
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, max_queue=0)
    for _ in range(lead.engine.ready.n_slots):
        admission.submit(submit())
    with pytest.raises(QueueFullError):
        admission.submit(submit())


class BeginsTexts:
    """A vocabulary with a token before each text."""

    adds_bos, bos = True, 1


@pytest.mark.parametrize(
    ("prompt", "n_keep", "n_kept"),
    [
        ([1, 5, 6, 7], 0, 1),
        ([1, 5, 6, 7], 2, 3),
        ([5, 6, 7, 8], 2, 2),
        ([1, 5, 6, 7], 99, 4),
        ([1, 5, 6, 7], -1, 4),
        ([5] * 127, -1, 124),
        ([5] * 127, 200, 124),
    ],
    ids=str,
)
async def test_a_context_shift_keeps_tokens_of_the_prompt_after_its_first_one(lead, prompt, n_keep, n_kept):
    admission = Admission(lead.sequences, lead.engine, BeginsTexts(), context_shift=True)
    admission.submit(submit(tokens=prompt, n_keep=n_keep))
    assert lead.engine.submitted[0].n_keep == n_kept


async def test_without_context_shifts_nothing_is_kept(lead):
    admission = Admission(lead.sequences, lead.engine, BeginsTexts())
    admission.submit(submit(tokens=[1, 5], n_keep=2))
    assert lead.engine.submitted[0].n_keep is None


@pytest.mark.parametrize("context_shift", [True, False])
async def test_a_prompt_that_fills_the_context_is_refused(lead, context_shift):
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, context_shift=context_shift)
    with pytest.raises(ContextExceededError, match=r"\(128 tokens\) exceeds the available context size"):
        admission.submit(submit(tokens=[5] * 128))
