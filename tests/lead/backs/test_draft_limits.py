import pytest

from lead.backs.draft_limits import MAX_INVALID_DRAFTS
from shared.errors import ProtocolError
from shared.protocol import MAX_BACK_MESSAGE_BYTES, MAX_DRAFT_TOKENS, Draft
from tests.lead.backs.harness import OURS, RegistryHarness, hello


@pytest.mark.parametrize("draft", [{"base": 4, "tokens": [8]}, {"base": 3, "tokens": [8, 100]}])
def test_a_draft_ahead_of_the_text_or_outside_the_vocabulary_is_counted_and_dropped(harness, draft):
    sequence, back = harness.followed()
    harness.backs.take_draft(back, Draft(sequence=sequence.id, **draft))
    assert (harness.posted, back.stats.n_invalid_drafts) == ([], 1)


def test_a_draft_for_a_sequence_that_was_not_opened_is_invalid(harness):
    sequence = harness.sequence()
    back = harness.join()
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    assert (harness.posted, back.stats.n_invalid_drafts) == ([], 1)


def test_a_draft_for_a_sequence_that_has_ended_is_stale(harness):
    sequence, back = harness.followed()
    harness.sequences.discard(sequence)
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    assert (back.stats.n_stale_drafts, back.stats.n_invalid_drafts) == (1, 0)


def test_too_many_invalid_drafts_are_an_error(harness):
    sequence, back = harness.followed()
    wrong = Draft(sequence=sequence.id, base=99, tokens=[8])
    for _ in range(MAX_INVALID_DRAFTS):
        harness.backs.take_draft(back, wrong)
    with pytest.raises(ProtocolError, match="invalid drafts"):
        harness.backs.take_draft(back, wrong)


def test_the_welcome_has_the_limits_and_longer_drafts_are_invalid():
    harness = RegistryHarness(max_draft=2, max_drafts_per_second=7)
    sequence = harness.sequence()
    back, welcome = harness.backs.join(hello(), OURS, "websocket")
    harness.backs.updates(back)
    for tokens in ([8, 9], [8, 9, 7]):
        harness.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=tokens))
    assert (welcome.max_draft, welcome.max_drafts_per_second) == (2, 7)
    assert [draft.tokens for draft in harness.posted] == [[8, 9]]
    assert back.stats.n_invalid_drafts == 1


@pytest.mark.parametrize(
    ("limits", "size", "n", "n_posted", "seconds"),
    [
        ({"max_drafts_per_second": 3}, {}, 5, 3, 1.0),
        ({"max_draft_bytes_per_second": 100_000}, {"n_bytes": 60_000}, 3, 1, 0.5),
    ],
    ids=["drafts", "bytes"],
)
def test_what_is_above_a_rate_limit_is_dropped(limits, size, n, n_posted, seconds):
    harness = RegistryHarness(**limits)
    sequence, back = harness.followed()
    draft = Draft(sequence=sequence.id, base=3, tokens=[8])
    for _ in range(n):
        send(harness, back, draft, **size)
    assert (len(harness.posted), back.stats.n_excess_drafts) == (n_posted, n - n_posted)
    harness.now = seconds
    send(harness, back, draft, **size)
    assert len(harness.posted) == n_posted + 1


def send(harness, back, draft, n_bytes=100):
    """Send a draft as the routes do."""
    if harness.backs.may_send(back, n_bytes):
        harness.backs.take_draft(back, draft)


def send_for(harness, back, seconds, per_second, n_bytes=100):
    """Let `back` send `per_second` drafts for `seconds`, at even intervals."""
    (sequence,) = harness.sequences
    draft = Draft(sequence=sequence.id, base=3, tokens=[8])
    harness.backs.updates(back)
    for _ in range(seconds * per_second):
        harness.now += 1 / per_second
        send(harness, back, draft, n_bytes)


def test_a_back_that_sends_twice_the_rate_limit_is_not_disconnected():
    harness = RegistryHarness(max_drafts_per_second=8)
    harness.sequence()
    back = harness.join()
    send_for(harness, back, seconds=600, per_second=16)
    assert back.stats.n_excess_drafts > 600


@pytest.mark.parametrize(
    ("limit", "n_tokens", "flood", "complaint"),
    [
        (("max_drafts_per_second", 8), 3, (3, 80, 100), "more than 3 times 8 drafts per second"),
        (("max_draft_bytes_per_second", 100_000), 3, (30, 10, 60_000), "3 times 100000 bytes per second"),
        (("max_drafts_per_second", 80), 1000, (30, 40, 100), "more than 20 stale drafts per second"),
    ],
    ids=["drafts", "bytes", "stale drafts"],
)
def test_a_flood_is_an_error(limit, n_tokens, flood, complaint):
    harness = RegistryHarness(**dict([limit]))
    harness.sequence(range(n_tokens))
    back = harness.join()
    with pytest.raises(ProtocolError, match=complaint):
        send_for(harness, back, *flood)


def test_bursts_with_pauses_are_tolerated():
    harness = RegistryHarness(max_drafts_per_second=8)
    harness.sequence()
    back = harness.join()
    for _ in range(20):
        send_for(harness, back, seconds=1, per_second=80)
        harness.now += 60


def test_a_message_of_the_largest_size_is_read_whatever_the_limit():
    harness = RegistryHarness(max_draft_bytes_per_second=MAX_BACK_MESSAGE_BYTES)
    assert harness.backs.may_send(harness.join(), MAX_BACK_MESSAGE_BYTES)


def test_a_draft_that_is_older_than_it_is_long_does_not_reach_the_engine():
    harness = RegistryHarness()
    sequence, back = harness.followed(range(MAX_DRAFT_TOKENS + 1))
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=0, tokens=[8]))
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=1, tokens=[8]))
    assert [draft.base for draft in harness.posted] == [1]
    assert back.stats.n_stale_drafts == 1


def test_stale_drafts_that_the_engine_finds_count_as_well(harness):
    back = harness.join(name="desk")
    harness.backs.count_stale("desk", 10_000)
    with pytest.raises(ProtocolError, match="stale drafts per second"):
        harness.backs.may_send(back, 100)


def test_a_few_stale_drafts_are_tolerated_for_ever():
    harness = RegistryHarness(max_drafts_per_second=80)
    harness.sequence(range(1000))
    back = harness.join()
    send_for(harness, back, seconds=600, per_second=10)
    assert back.stats.n_stale_drafts == 6000


def test_of_a_flood_of_stale_drafts_only_a_sample_is_read(harness):
    harness.sequence(range(1000))
    back = harness.join()
    read = []
    take_draft = harness.backs.take_draft
    harness.backs.take_draft = lambda *arguments: (read.append(1), take_draft(*arguments))
    send_for(harness, back, seconds=3, per_second=1600)
    assert back.stats.n_stale_drafts == pytest.approx(4800, abs=8)
    assert len(read) < 1300


def test_the_sample_shows_when_drafts_are_of_use_again(harness):
    sequence = harness.sequence(range(1000))
    back = harness.join()
    send_for(harness, back, seconds=2, per_second=1600)
    fresh = Draft(sequence=sequence.id, base=1000, tokens=[8])
    for _ in range(1600):
        harness.now += 1 / 1600
        send(harness, back, fresh)
    assert len(harness.posted) == 200  # one of eight
    harness.now += 4
    harness.posted.clear()
    for _ in range(10):
        send(harness, back, fresh)
    assert len(harness.posted) == 10


def test_a_flood_of_stale_drafts_is_read_at_intervals(harness):
    harness.sequence(range(1000))
    back = harness.join()
    assert harness.backs.pause(back) == 0
    send_for(harness, back, seconds=2, per_second=1600)
    seconds = harness.backs.pause(back)
    assert seconds > 0
    harness.now += seconds
    assert harness.backs.pause(back) == 0
    harness.now += seconds
    assert harness.backs.pause(back) == seconds


def test_each_token_is_credited_to_its_own_source(harness):
    sequence = harness.sequence()
    one, two = harness.join(name="one"), harness.join(name="two")
    harness.commit(sequence, [4, 5, 6], sources=["two", "one", "ngram", "two"], n_accepted=2, rejected=[8, 9])
    assert (one.stats.n_used_tokens, one.stats.n_accepted_tokens) == (1, 1)
    assert (two.stats.n_used_tokens, two.stats.n_accepted_tokens) == (2, 1)


def test_totals_are_the_sums_over_all_backs(harness):
    sequence = harness.sequence()
    harness.join(name="one"), harness.join(name="two")
    harness.commit(sequence, [4, 5], sources=["one", "two"], n_accepted=1, rejected=[8])
    totals = harness.backs.totals()
    assert (totals["n_used_tokens"], totals["n_accepted_tokens"], totals["n_drafts"]) == (2, 1, 0)
