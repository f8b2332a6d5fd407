import logging

import pytest

from lead.backs.registry import HTTP_SILENCE_SECONDS, MAX_INVALID_DRAFTS, Backs
from lead.engine.events import Committed, Finished, Started
from lead.generation.sequences import Sequences
from lead.settings.limits import RequestLimits
from shared.errors import ProtocolError, UnavailableError
from shared.protocol import MAX_TOKENS_PER_MESSAGE, Close, Draft, Extend, Hello, Open, Tune, VocabularyId
from shared.sampling.sampler import SamplingParameters

OURS = VocabularyId(fingerprint="same", n_tokens=100, model="big")
SAMPLING = SamplingParameters(seed=5, temperature=0.3)


def hello(**changes):
    fields = {"protocol": 1, "name": "b", "vocabulary": OURS, "n_ctx": 64, "n_sequences": 2}
    return Hello(**fields | changes)


class RegistryHarness:
    """Backs with their sequences, what reaches the engine, and a clock that a test moves."""

    def __init__(self, **limits):
        self.now = 0.0
        self.posted = []
        self.sequences = Sequences()
        self.names = []
        self.backs = Backs(
            self.sequences,
            OURS,
            100,
            post_draft=self.posted.append,
            on_change=lambda names: setattr(self, "names", names),
            clock=lambda: self.now,
            limits=RequestLimits(**limits),
        )

    def join(self, transport="websocket", **changes):
        return self.backs.join(hello(**changes), transport)[0]

    def sequence(self, tokens=(1, 2, 3)):
        sequence = self.sequences.create(list(tokens), SAMPLING)
        self.sequences.apply(Started(sequence=sequence.id, n_cached=0), 0.0)
        return sequence

    def commit(self, sequence, tokens, **speculation):
        start = len(sequence.tokens)
        step = Committed(sequence=sequence.id, start=start, tokens=tokens, **speculation)
        self.sequences.apply(step, 0.0)


@pytest.fixture
def harness():
    return RegistryHarness()


def test_a_back_is_told_of_running_sequences_with_their_parameters(harness):
    sequence = harness.sequence()
    assert harness.backs.news(harness.join()) == [
        Open(sequence=sequence.id, sampling=SAMPLING, tokens=[1, 2, 3])
    ]


def test_of_a_private_sequence_no_back_hears(harness):
    back = harness.join()
    secret = harness.sequences.create([1, 2, 3], SAMPLING, private=True)
    harness.sequences.apply(Started(sequence=secret.id, n_cached=0), 0.0)
    harness.commit(secret, [4])
    assert harness.backs.news(back) == []
    harness.backs.take_draft(back, Draft(sequence=secret.id, base=3, tokens=[4]))
    assert (harness.posted, back.figures.n_invalid_drafts) == ([], 1)
    harness.sequences.discard(secret)
    assert harness.backs.news(back) == []


def test_what_was_told_is_not_told_again(harness):
    harness.sequence()
    back = harness.join()
    harness.backs.news(back)
    assert harness.backs.news(back) == []


def test_a_slow_back_gets_what_it_missed_in_one_piece(harness):
    sequence, back = harness.sequence(), harness.join()
    harness.backs.news(back)
    for token in (4, 5, 6):
        harness.commit(sequence, [token])
    assert harness.backs.news(back) == [Extend(sequence=sequence.id, start=3, tokens=[4, 5, 6])]


def test_a_late_back_gets_everything(harness):
    sequence = harness.sequence()
    harness.commit(sequence, [4, 5])
    (news,) = harness.backs.news(harness.join())
    assert news.tokens == [1, 2, 3, 4, 5]


def test_an_ended_sequence_is_closed_once(harness):
    sequence, back = harness.sequence(), harness.join()
    harness.backs.news(back)
    harness.sequences.apply(Finished(sequence=sequence.id, reason="stop"), 0.0)
    assert harness.backs.news(back) == [Close(sequence=sequence.id, reason="ended")]
    assert harness.backs.news(back) == []


def test_a_sequence_that_came_and_went_unseen_is_not_mentioned(harness):
    back, sequence = harness.join(), harness.sequence()
    harness.sequences.discard(sequence)
    assert harness.backs.news(back) == []


def test_a_back_gets_no_more_sequences_than_it_has_room_for(harness):
    sequences = [harness.sequence() for _ in range(3)]
    back = harness.join(n_sequences=2)
    assert [message.sequence for message in harness.backs.news(back)] == [s.id for s in sequences[:2]]
    harness.sequences.discard(sequences[0])
    assert [(m.type, m.sequence) for m in harness.backs.news(back)] == [
        ("close", sequences[0].id),
        ("open", sequences[2].id),
    ]


def test_a_long_prompt_comes_in_several_messages(harness):
    tokens = [7] * (2 * MAX_TOKENS_PER_MESSAGE + 1)
    harness.sequence(tokens)
    news = harness.backs.news(harness.join())
    assert [message.type for message in news] == ["open", "extend", "extend"]
    assert [token for message in news for token in message.tokens] == tokens
    assert [message.start for message in news[1:]] == [MAX_TOKENS_PER_MESSAGE, 2 * MAX_TOKENS_PER_MESSAGE]


def test_a_draft_goes_to_the_engine_under_the_backs_name(harness):
    sequence, back = harness.sequence(), harness.join(name="desk")
    harness.backs.news(back)
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    (posted,) = harness.posted
    assert (posted.sequence, posted.source, posted.base, posted.tokens) == (sequence.id, "desk", 3, [8])


@pytest.mark.parametrize("draft", [{"base": 4, "tokens": [8]}, {"base": 3, "tokens": [8, 100]}])
def test_a_draft_ahead_of_the_text_or_outside_the_vocabulary_is_counted_and_dropped(harness, draft):
    sequence, back = harness.sequence(), harness.join()
    harness.backs.news(back)
    harness.backs.take_draft(back, Draft(sequence=sequence.id, **draft))
    assert (harness.posted, back.figures.n_invalid_drafts) == ([], 1)


def test_a_draft_for_a_sequence_that_the_back_was_not_given_is_invalid(harness):
    sequence = harness.sequence()
    back = harness.join()
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    assert (harness.posted, back.figures.n_invalid_drafts) == ([], 1)


def test_a_draft_for_a_sequence_that_has_ended_is_stale(harness):
    sequence, back = harness.sequence(), harness.join()
    harness.backs.news(back)
    harness.sequences.discard(sequence)
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    assert (back.figures.n_stale_drafts, back.figures.n_invalid_drafts) == (1, 0)


def test_repeated_abuse_is_an_error(harness):
    sequence, back = harness.sequence(), harness.join()
    harness.backs.news(back)
    wrong = Draft(sequence=sequence.id, base=99, tokens=[8])
    for _ in range(MAX_INVALID_DRAFTS):
        harness.backs.take_draft(back, wrong)
    with pytest.raises(ProtocolError, match="not valid"):
        harness.backs.take_draft(back, wrong)


def test_the_back_whose_draft_was_verified_gets_the_credit(harness):
    sequence = harness.sequence()
    one, two = harness.join(name="one"), harness.join(name="two")
    harness.commit(sequence, [4, 5, 6], sources=["two"] * 3, n_accepted=2, rejected=[9])
    assert (two.figures.n_used_tokens, two.figures.n_accepted_tokens) == (3, 2)
    assert one.figures.n_used_tokens == 0


def test_two_backs_of_one_name_are_told_apart(harness):
    assert [harness.join(name="desk").name for _ in range(3)] == ["desk", "desk-2", "desk-3"]


@pytest.mark.parametrize("name", ["ngram", "prediction"])
def test_no_back_goes_by_the_name_of_a_source_in_the_lead(harness, name):
    assert harness.join(name=name).name == f"{name}-2"


def test_names_are_enough_for_all_backs(harness):
    names = {harness.join(name="ngram").name for _ in range(RequestLimits().max_backs)}
    assert len(names) == RequestLimits().max_backs


def test_a_draft_keeps_its_branches_and_confidences_and_says_when_it_came(harness):
    sequence, back = harness.sequence(), harness.join()
    harness.backs.news(back)
    harness.now = 7.0
    draft = Draft(sequence=sequence.id, base=3, tokens=[8, 9], parents=[-1, -1], confidences=[0.6, 0.3])
    harness.backs.take_draft(back, draft)
    (posted,) = harness.posted
    assert (posted.parents, posted.confidences, posted.received_at) == ([-1, -1], [0.6, 0.3], 7.0)


def test_credit_goes_to_each_token_s_own_source(harness):
    sequence = harness.sequence()
    one, two = harness.join(name="one"), harness.join(name="two")
    harness.commit(sequence, [4, 5, 6], sources=["two", "one", "ngram", "two"], n_accepted=2, rejected=[8, 9])
    assert (one.figures.n_used_tokens, one.figures.n_accepted_tokens) == (1, 1)
    assert (two.figures.n_used_tokens, two.figures.n_accepted_tokens) == (2, 1)


def test_what_pays_is_told_to_each_back_once(harness):
    early = harness.join()
    assert harness.backs.news(early) == []
    tune = Tune(n_ahead=4, min_confidence=0.25)
    harness.backs.tune(tune)
    assert harness.backs.news(early) == [tune]
    assert harness.backs.news(early) == []
    assert harness.backs.news(harness.join()) == [tune]


def test_of_what_paid_only_the_newest_is_told(harness):
    back = harness.join()
    harness.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    harness.backs.tune(Tune(n_ahead=2, min_confidence=0.0))
    assert harness.backs.news(back) == [Tune(n_ahead=2, min_confidence=0.0)]


def test_what_pays_is_told_before_what_to_draft_for(harness):
    harness.sequence()
    harness.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    assert [message.type for message in harness.backs.news(harness.join())] == ["tune", "open"]


async def test_what_pays_wakes_those_who_wait_for_news(harness):
    change = harness.sequences.changed.next_change()
    harness.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    assert change.is_set()


def test_whoever_is_connected_is_told_to_the_engine(harness):
    desk, _ = harness.join(name="desk"), harness.join(name="desk")
    assert harness.names == ["desk", "desk-2"]
    harness.backs.leave(desk)
    assert harness.names == ["desk-2"]


def test_a_back_that_fell_silent_is_not_connected_any_more(harness):
    harness.join(name="desk", transport="http")
    harness.now = HTTP_SILENCE_SECONDS + 1
    assert list(harness.backs) == []
    assert harness.names == []


def test_a_silent_back_is_forgotten_at_the_end_of_a_text_though_nobody_asks(harness):
    harness.join(transport="http")
    sequence = harness.sequence()
    harness.now = HTTP_SILENCE_SECONDS + 1
    harness.sequences.discard(sequence)
    assert harness.names == []


def test_leaving_twice_is_told_once(harness):
    back = harness.join()
    harness.backs.leave(back)
    harness.names = ["untouched"]
    harness.backs.leave(back)
    assert harness.names == ["untouched"]


def test_another_vocabulary_is_refused_naming_both_models_and_what_to_do(harness):
    theirs = VocabularyId(fingerprint="other", n_tokens=50, model="small")
    with pytest.raises(ProtocolError, match=r"'big' with 100 tokens.*'small' with 50.*same family"):
        harness.join(vocabulary=theirs)


def test_padding_of_the_vocabulary_is_no_difference(harness):
    harness.join(vocabulary=VocabularyId(fingerprint="same", n_tokens=128, model="small"))


def test_another_protocol_is_refused_naming_both(harness):
    with pytest.raises(ProtocolError, match=r"protocol 1, this back 2"):
        harness.join(protocol=2)


def test_there_is_a_most_of_backs():
    harness = RegistryHarness(max_backs=2)
    one, _ = harness.join(), harness.join()
    with pytest.raises(UnavailableError, match="2 backs already"):
        harness.join()
    harness.backs.leave(one)
    harness.join()


def test_the_longest_draft_is_told_and_longer_ones_are_not_valid():
    harness = RegistryHarness(max_draft=2)
    sequence = harness.sequence()
    back, welcome = harness.backs.join(hello(), "websocket")
    harness.backs.news(back)
    for tokens in ([8, 9], [8, 9, 7]):
        harness.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=tokens))
    assert welcome.max_draft == 2
    assert [draft.tokens for draft in harness.posted] == [[8, 9]]
    assert back.figures.n_invalid_drafts == 1


def test_drafts_beyond_the_rate_are_dropped_until_time_has_passed():
    harness = RegistryHarness(max_drafts_per_second=3)
    sequence, back = harness.sequence(), harness.join()
    harness.backs.news(back)
    draft = Draft(sequence=sequence.id, base=3, tokens=[8])
    for _ in range(5):
        harness.backs.take_draft(back, draft)
    assert (len(harness.posted), back.figures.n_excess_drafts) == (3, 2)
    harness.now = 1.0
    harness.backs.take_draft(back, draft)
    assert len(harness.posted) == 4


def send_for(harness, back, seconds, per_second):
    """`back` sends so many drafts, evenly."""
    (sequence,) = harness.sequences
    draft = Draft(sequence=sequence.id, base=3, tokens=[8])
    harness.backs.news(back)
    for _ in range(seconds * per_second):
        harness.now += 1 / per_second
        harness.backs.take_draft(back, draft)


def test_a_back_that_sends_somewhat_too_much_is_never_disconnected():
    harness = RegistryHarness(max_drafts_per_second=8)
    harness.sequence()
    back = harness.join()
    send_for(harness, back, seconds=600, per_second=16)
    assert back.figures.n_excess_drafts > 600


def test_a_back_that_floods_is_an_error():
    harness = RegistryHarness(max_drafts_per_second=8)
    harness.sequence()
    back = harness.join()
    with pytest.raises(ProtocolError, match="more than 3 times 8 drafts a second"):
        send_for(harness, back, seconds=3, per_second=80)


def test_a_burst_is_forgiven_in_time():
    harness = RegistryHarness(max_drafts_per_second=8)
    harness.sequence()
    back = harness.join()
    for _ in range(20):
        send_for(harness, back, seconds=1, per_second=80)
        harness.now += 60


def test_how_many_drafts_a_second_are_taken_is_told():
    _, welcome = RegistryHarness(max_drafts_per_second=7).backs.join(hello(), "websocket")
    assert welcome.max_drafts_per_second == 7


def test_what_a_lost_reply_told_is_told_again(harness):
    back, sequence = harness.join(transport="http"), harness.sequence()
    ended = harness.sequence()
    harness.backs.confirm(back, 0)
    harness.backs.news(back)
    heard = harness.backs.number_reply(back)
    harness.backs.confirm(back, heard)
    harness.commit(sequence, [4, 5])
    harness.sequences.discard(ended)
    harness.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    lost = harness.backs.news(back)
    harness.backs.number_reply(back)
    harness.backs.confirm(back, heard)
    assert harness.backs.news(back) == lost
    assert [message.type for message in lost] == ["tune", "close", "extend"]


def test_a_reply_that_arrived_is_not_repeated(harness):
    back = harness.join(transport="http")
    harness.sequence()
    harness.backs.news(back)
    harness.backs.confirm(back, harness.backs.number_reply(back))
    assert harness.backs.news(back) == []


def test_two_replies_lost_in_a_row_are_both_told_again(harness):
    back, sequence = harness.join(transport="http"), harness.sequence()
    for _ in range(2):
        harness.backs.confirm(back, 0)
        harness.backs.news(back)
        harness.backs.number_reply(back)
        harness.commit(sequence, [9])
    harness.backs.confirm(back, 0)
    assert harness.backs.news(back) == [Open(sequence=sequence.id, sampling=SAMPLING, tokens=[1, 2, 3, 9, 9])]


def test_a_back_that_posts_is_forgotten_after_a_silence(harness):
    back = harness.join(transport="http")
    harness.now = HTTP_SILENCE_SECONDS - 1
    assert harness.backs.get(back.id) is back
    harness.now += HTTP_SILENCE_SECONDS - 1
    assert harness.backs.get(back.id) is back
    harness.now += HTTP_SILENCE_SECONDS + 1
    assert harness.backs.get(back.id) is None


def test_a_silent_websocket_is_left_to_its_pings(harness):
    back = harness.join(transport="websocket")
    harness.now = 10 * HTTP_SILENCE_SECONDS
    assert list(harness.backs) == [back]


def test_the_list_shows_each_back_with_its_figures(harness):
    back = harness.join(name="desk")
    harness.sequence()
    harness.backs.news(back)
    harness.now = 3.0
    (record,) = harness.backs.describe()
    assert record["name"] == "desk"
    assert (record["model"], record["transport"], record["connected_seconds"]) == ("big", "websocket", 3.0)
    assert (record["n_sequences"], record["n_drafts"]) == (1, 0)


def test_a_back_that_joins_and_leaves_has_a_line_in_the_log_for_each(harness, caplog):
    caplog.set_level(logging.INFO, "lead.backs")
    back = harness.join(name="desk")
    harness.now = 60.0
    harness.backs.leave(back)
    harness.backs.leave(back)
    joined, left = (record.getMessage() for record in caplog.records)
    assert joined == "back desk (big, websocket) joined"
    assert left.startswith("back desk (big, websocket) left after 60 s: 0 drafts")


def test_the_name_of_a_backs_model_cannot_write_lines_of_the_log(harness):
    evil = VocabularyId(fingerprint="same", n_tokens=100, model="small\x1b[31m\n12:00:00 lead INFO: all well")
    assert str(harness.join(vocabulary=evil)) == "b (small␛[31m 12:00:00 lead INFO: all well, websocket)"


def test_so_has_one_that_falls_silent(harness, caplog):
    harness.join("http")
    caplog.set_level(logging.INFO, "lead.backs")
    harness.now = HTTP_SILENCE_SECONDS + 1
    assert list(harness.backs) == []
    assert "left after 91 s" in caplog.text
