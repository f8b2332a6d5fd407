import pytest

from lead.engine.commands import RequestOptions
from lead.generation.admission import Admission
from shared.errors import QueueFullError
from shared.sampling.parameters import SamplingParameters


@pytest.mark.parametrize(
    ("by_default", "asked", "private"),
    [(False, None, False), (True, None, True), (True, False, False), (False, True, True)],
)
async def test_a_request_overrides_the_default_for_privacy(lead, by_default, asked, private):
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, private_by_default=by_default)
    assert admission.submit([1], SamplingParameters(seed=1), 1, private=asked).private == private


@pytest.mark.parametrize(("private", "owner"), [(False, 7), (True, None)])
async def test_later_requests_are_not_drafted_from_a_private_one(lead, private, owner):
    options = RequestOptions(owner=7)
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary)
    sequence = admission.submit([1], SamplingParameters(seed=1), 1, private=private, options=options)
    assert sequence.options.owner == owner


@pytest.mark.parametrize(("n_bytes", "private"), [(900_000, False), (1 << 20, True)])
async def test_a_grammar_larger_than_a_protocol_message_makes_a_sequence_private(lead, n_bytes, private):
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary)
    sampling = SamplingParameters(seed=1, grammar="#" * n_bytes)
    sequence = admission.submit([1], sampling, 1, options=RequestOptions(owner=7))
    assert (sequence.private, sequence.options.owner) == (private, 7)


async def test_a_request_beyond_the_queue_is_refused(lead):
    lead.engine.hold()
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, max_queue=2)
    n_slots = lead.engine.ready.n_slots
    sequences = [admission.submit([1], SamplingParameters(seed=1), 1) for _ in range(n_slots + 2)]
    with pytest.raises(QueueFullError, match="2 more requests wait"):
        admission.submit([1], SamplingParameters(seed=1), 1)
    admission.cancel(sequences[0])
    admission.submit([1], SamplingParameters(seed=1), 1)


async def test_without_a_queue_requests_still_fill_the_slots(lead):
    lead.engine.hold()
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, max_queue=0)
    for _ in range(lead.engine.ready.n_slots):
        admission.submit([1], SamplingParameters(seed=1), 1)
    with pytest.raises(QueueFullError):
        admission.submit([1], SamplingParameters(seed=1), 1)


@pytest.mark.parametrize("wanted", [True, False])
async def test_prompts_are_logged_only_if_enabled(lead, caplog, wanted):
    caplog.set_level("DEBUG")
    admission = Admission(lead.sequences, lead.engine, lead.vocabulary, log_prompts=wanted)
    admission.submit(lead.tokens("a secret"), SamplingParameters(seed=1), 1)
    assert ("a secret" in caplog.text) == wanted
