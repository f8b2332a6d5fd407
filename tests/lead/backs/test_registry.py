import logging

import pytest

from lead.backs.registry import HTTP_SILENCE_SECONDS, MAX_INVALID_DRAFTS, Backs
from lead.engine.messages import Committed, Finished, Started
from lead.generation.sequences import Sequences
from lead.settings.limits import Bounds
from shared.errors import ProtocolError, UnavailableError
from shared.protocol import MAX_TOKENS_PER_MESSAGE, Close, Draft, Extend, Hello, Open, Tune, VocabularyId
from shared.sampling.sampler import SamplingParameters

OURS = VocabularyId(fingerprint="same", n_tokens=100, model="big")
SAMPLING = SamplingParameters(seed=5, temperature=0.3)


def hello(**changes):
    fields = {"protocol": 1, "name": "b", "vocabulary": OURS, "n_ctx": 64, "n_sequences": 2}
    return Hello(**fields | changes)


class House:
    """Backs with their sequences, what reaches the engine, and a clock that a test moves."""

    def __init__(self, **bounds):
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
            bounds=Bounds(**bounds),
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
def house():
    return House()


def test_a_back_is_told_of_running_sequences_with_their_parameters(house):
    sequence = house.sequence()
    assert house.backs.news(house.join()) == [Open(sequence=sequence.id, sampling=SAMPLING, tokens=[1, 2, 3])]


def test_of_a_private_sequence_no_back_hears(house):
    back = house.join()
    secret = house.sequences.create([1, 2, 3], SAMPLING, private=True)
    house.sequences.apply(Started(sequence=secret.id, n_cached=0), 0.0)
    house.commit(secret, [4])
    assert house.backs.news(back) == []
    house.backs.take_draft(back, Draft(sequence=secret.id, base=3, tokens=[4]))
    assert (house.posted, back.figures.n_invalid_drafts) == ([], 1)
    house.sequences.discard(secret)
    assert house.backs.news(back) == []


def test_what_was_told_is_not_told_again(house):
    house.sequence()
    back = house.join()
    house.backs.news(back)
    assert house.backs.news(back) == []


def test_a_slow_back_gets_what_it_missed_in_one_piece(house):
    sequence, back = house.sequence(), house.join()
    house.backs.news(back)
    for token in (4, 5, 6):
        house.commit(sequence, [token])
    assert house.backs.news(back) == [Extend(sequence=sequence.id, start=3, tokens=[4, 5, 6])]


def test_a_late_back_gets_everything(house):
    sequence = house.sequence()
    house.commit(sequence, [4, 5])
    (news,) = house.backs.news(house.join())
    assert news.tokens == [1, 2, 3, 4, 5]


def test_an_ended_sequence_is_closed_once(house):
    sequence, back = house.sequence(), house.join()
    house.backs.news(back)
    house.sequences.apply(Finished(sequence=sequence.id, reason="stop"), 0.0)
    assert house.backs.news(back) == [Close(sequence=sequence.id, reason="ended")]
    assert house.backs.news(back) == []


def test_a_sequence_that_came_and_went_unseen_is_not_mentioned(house):
    back, sequence = house.join(), house.sequence()
    house.sequences.discard(sequence)
    assert house.backs.news(back) == []


def test_a_back_gets_no_more_sequences_than_it_has_room_for(house):
    sequences = [house.sequence() for _ in range(3)]
    back = house.join(n_sequences=2)
    assert [message.sequence for message in house.backs.news(back)] == [s.id for s in sequences[:2]]
    house.sequences.discard(sequences[0])
    assert [(m.type, m.sequence) for m in house.backs.news(back)] == [
        ("close", sequences[0].id),
        ("open", sequences[2].id),
    ]


def test_a_long_prompt_comes_in_several_messages(house):
    tokens = [7] * (2 * MAX_TOKENS_PER_MESSAGE + 1)
    house.sequence(tokens)
    news = house.backs.news(house.join())
    assert [message.type for message in news] == ["open", "extend", "extend"]
    assert [token for message in news for token in message.tokens] == tokens
    assert [message.start for message in news[1:]] == [MAX_TOKENS_PER_MESSAGE, 2 * MAX_TOKENS_PER_MESSAGE]


def test_a_draft_goes_to_the_engine_under_the_backs_name(house):
    sequence, back = house.sequence(), house.join(name="desk")
    house.backs.news(back)
    house.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    (posted,) = house.posted
    assert (posted.sequence, posted.source, posted.base, posted.tokens) == (sequence.id, "desk", 3, [8])


@pytest.mark.parametrize("draft", [{"base": 4, "tokens": [8]}, {"base": 3, "tokens": [8, 100]}])
def test_a_draft_ahead_of_the_text_or_outside_the_vocabulary_is_counted_and_dropped(house, draft):
    sequence, back = house.sequence(), house.join()
    house.backs.news(back)
    house.backs.take_draft(back, Draft(sequence=sequence.id, **draft))
    assert (house.posted, back.figures.n_invalid_drafts) == ([], 1)


def test_a_draft_for_a_sequence_that_the_back_was_not_given_is_invalid(house):
    sequence = house.sequence()
    back = house.join()
    house.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    assert (house.posted, back.figures.n_invalid_drafts) == ([], 1)


def test_a_draft_for_a_sequence_that_has_ended_is_stale(house):
    sequence, back = house.sequence(), house.join()
    house.backs.news(back)
    house.sequences.discard(sequence)
    house.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=[8]))
    assert (back.figures.n_stale_drafts, back.figures.n_invalid_drafts) == (1, 0)


def test_repeated_abuse_is_an_error(house):
    sequence, back = house.sequence(), house.join()
    house.backs.news(back)
    wrong = Draft(sequence=sequence.id, base=99, tokens=[8])
    for _ in range(MAX_INVALID_DRAFTS):
        house.backs.take_draft(back, wrong)
    with pytest.raises(ProtocolError, match="not valid"):
        house.backs.take_draft(back, wrong)


def test_the_back_whose_draft_was_verified_gets_the_credit(house):
    sequence = house.sequence()
    one, two = house.join(name="one"), house.join(name="two")
    house.commit(sequence, [4, 5, 6], sources=["two"] * 3, n_accepted=2, rejected=[9])
    assert (two.figures.n_used_tokens, two.figures.n_accepted_tokens) == (3, 2)
    assert one.figures.n_used_tokens == 0


def test_two_backs_of_one_name_are_told_apart(house):
    assert [house.join(name="desk").name for _ in range(3)] == ["desk", "desk-2", "desk-3"]


@pytest.mark.parametrize("name", ["ngram", "prediction"])
def test_no_back_goes_by_the_name_of_a_source_in_the_lead(house, name):
    assert house.join(name=name).name == f"{name}-2"


def test_names_are_enough_for_all_backs(house):
    names = {house.join(name="ngram").name for _ in range(Bounds().max_backs)}
    assert len(names) == Bounds().max_backs


def test_a_draft_keeps_its_branches_and_confidences_and_says_when_it_came(house):
    sequence, back = house.sequence(), house.join()
    house.backs.news(back)
    house.now = 7.0
    draft = Draft(sequence=sequence.id, base=3, tokens=[8, 9], parents=[-1, -1], confidences=[0.6, 0.3])
    house.backs.take_draft(back, draft)
    (posted,) = house.posted
    assert (posted.parents, posted.confidences, posted.received_at) == ([-1, -1], [0.6, 0.3], 7.0)


def test_credit_goes_to_each_token_s_own_source(house):
    sequence = house.sequence()
    one, two = house.join(name="one"), house.join(name="two")
    house.commit(sequence, [4, 5, 6], sources=["two", "one", "ngram", "two"], n_accepted=2, rejected=[8, 9])
    assert (one.figures.n_used_tokens, one.figures.n_accepted_tokens) == (1, 1)
    assert (two.figures.n_used_tokens, two.figures.n_accepted_tokens) == (2, 1)


def test_what_pays_is_told_to_each_back_once(house):
    early = house.join()
    assert house.backs.news(early) == []
    tune = Tune(n_ahead=4, min_confidence=0.25)
    house.backs.tune(tune)
    assert house.backs.news(early) == [tune]
    assert house.backs.news(early) == []
    assert house.backs.news(house.join()) == [tune]


def test_of_what_paid_only_the_newest_is_told(house):
    back = house.join()
    house.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    house.backs.tune(Tune(n_ahead=2, min_confidence=0.0))
    assert house.backs.news(back) == [Tune(n_ahead=2, min_confidence=0.0)]


def test_what_pays_is_told_before_what_to_draft_for(house):
    house.sequence()
    house.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    assert [message.type for message in house.backs.news(house.join())] == ["tune", "open"]


async def test_what_pays_wakes_those_who_wait_for_news(house):
    change = house.sequences.changed.next_change()
    house.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    assert change.is_set()


def test_whoever_is_connected_is_told_to_the_engine(house):
    desk, _ = house.join(name="desk"), house.join(name="desk")
    assert house.names == ["desk", "desk-2"]
    house.backs.leave(desk)
    assert house.names == ["desk-2"]


def test_a_back_that_fell_silent_is_not_connected_any_more(house):
    house.join(name="desk", transport="http")
    house.now = HTTP_SILENCE_SECONDS + 1
    assert list(house.backs) == []
    assert house.names == []


def test_a_silent_back_is_forgotten_at_the_end_of_a_text_though_nobody_asks(house):
    house.join(transport="http")
    sequence = house.sequence()
    house.now = HTTP_SILENCE_SECONDS + 1
    house.sequences.discard(sequence)
    assert house.names == []


def test_leaving_twice_is_told_once(house):
    back = house.join()
    house.backs.leave(back)
    house.names = ["untouched"]
    house.backs.leave(back)
    assert house.names == ["untouched"]


def test_another_vocabulary_is_refused_naming_both_models_and_what_to_do(house):
    theirs = VocabularyId(fingerprint="other", n_tokens=50, model="small")
    with pytest.raises(ProtocolError, match=r"'big' with 100 tokens.*'small' with 50.*same family"):
        house.join(vocabulary=theirs)


def test_padding_of_the_vocabulary_is_no_difference(house):
    house.join(vocabulary=VocabularyId(fingerprint="same", n_tokens=128, model="small"))


def test_another_protocol_is_refused_naming_both(house):
    with pytest.raises(ProtocolError, match=r"protocol 1, this back 2"):
        house.join(protocol=2)


def test_there_is_a_most_of_backs():
    house = House(max_backs=2)
    one, _ = house.join(), house.join()
    with pytest.raises(UnavailableError, match="2 backs already"):
        house.join()
    house.backs.leave(one)
    house.join()


def test_the_longest_draft_is_told_and_longer_ones_are_not_valid():
    house = House(max_draft=2)
    sequence = house.sequence()
    back, welcome = house.backs.join(hello(), "websocket")
    house.backs.news(back)
    for tokens in ([8, 9], [8, 9, 7]):
        house.backs.take_draft(back, Draft(sequence=sequence.id, base=3, tokens=tokens))
    assert welcome.max_draft == 2
    assert [draft.tokens for draft in house.posted] == [[8, 9]]
    assert back.figures.n_invalid_drafts == 1


def test_drafts_beyond_the_rate_are_dropped_until_time_has_passed():
    house = House(max_drafts_per_second=3)
    sequence, back = house.sequence(), house.join()
    house.backs.news(back)
    draft = Draft(sequence=sequence.id, base=3, tokens=[8])
    for _ in range(5):
        house.backs.take_draft(back, draft)
    assert (len(house.posted), back.figures.n_excess_drafts) == (3, 2)
    house.now = 1.0
    house.backs.take_draft(back, draft)
    assert len(house.posted) == 4


def send_for(house, back, seconds, per_second):
    """`back` sends so many drafts, evenly."""
    (sequence,) = house.sequences
    draft = Draft(sequence=sequence.id, base=3, tokens=[8])
    house.backs.news(back)
    for _ in range(seconds * per_second):
        house.now += 1 / per_second
        house.backs.take_draft(back, draft)


def test_a_back_that_sends_somewhat_too_much_is_never_disconnected():
    house = House(max_drafts_per_second=8)
    house.sequence()
    back = house.join()
    send_for(house, back, seconds=600, per_second=16)
    assert back.figures.n_excess_drafts > 600


def test_a_back_that_floods_is_an_error():
    house = House(max_drafts_per_second=8)
    house.sequence()
    back = house.join()
    with pytest.raises(ProtocolError, match="more than 3 times 8 drafts a second"):
        send_for(house, back, seconds=3, per_second=80)


def test_a_burst_is_forgiven_in_time():
    house = House(max_drafts_per_second=8)
    house.sequence()
    back = house.join()
    for _ in range(20):
        send_for(house, back, seconds=1, per_second=80)
        house.now += 60


def test_how_many_drafts_a_second_are_taken_is_told():
    _, welcome = House(max_drafts_per_second=7).backs.join(hello(), "websocket")
    assert welcome.max_drafts_per_second == 7


def test_what_a_lost_reply_told_is_told_again(house):
    back, sequence = house.join(transport="http"), house.sequence()
    ended = house.sequence()
    house.backs.confirm(back, 0)
    house.backs.news(back)
    heard = house.backs.number_reply(back)
    house.backs.confirm(back, heard)
    house.commit(sequence, [4, 5])
    house.sequences.discard(ended)
    house.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    lost = house.backs.news(back)
    house.backs.number_reply(back)
    house.backs.confirm(back, heard)
    assert house.backs.news(back) == lost
    assert [message.type for message in lost] == ["tune", "close", "extend"]


def test_a_reply_that_arrived_is_not_repeated(house):
    back = house.join(transport="http")
    house.sequence()
    house.backs.news(back)
    house.backs.confirm(back, house.backs.number_reply(back))
    assert house.backs.news(back) == []


def test_two_replies_lost_in_a_row_are_both_told_again(house):
    back, sequence = house.join(transport="http"), house.sequence()
    for _ in range(2):
        house.backs.confirm(back, 0)
        house.backs.news(back)
        house.backs.number_reply(back)
        house.commit(sequence, [9])
    house.backs.confirm(back, 0)
    assert house.backs.news(back) == [Open(sequence=sequence.id, sampling=SAMPLING, tokens=[1, 2, 3, 9, 9])]


def test_a_back_that_posts_is_forgotten_after_a_silence(house):
    back = house.join(transport="http")
    house.now = HTTP_SILENCE_SECONDS - 1
    assert house.backs.get(back.id) is back
    house.now += HTTP_SILENCE_SECONDS - 1
    assert house.backs.get(back.id) is back
    house.now += HTTP_SILENCE_SECONDS + 1
    assert house.backs.get(back.id) is None


def test_a_silent_websocket_is_left_to_its_pings(house):
    back = house.join(transport="websocket")
    house.now = 10 * HTTP_SILENCE_SECONDS
    assert list(house.backs) == [back]


def test_the_list_shows_each_back_with_its_figures(house):
    back = house.join(name="desk")
    house.sequence()
    house.backs.news(back)
    house.now = 3.0
    (record,) = house.backs.describe()
    assert record["name"] == "desk"
    assert (record["model"], record["transport"], record["connected_seconds"]) == ("big", "websocket", 3.0)
    assert (record["n_sequences"], record["n_drafts"]) == (1, 0)


def test_a_back_that_joins_and_leaves_has_a_line_in_the_log_for_each(house, caplog):
    caplog.set_level(logging.INFO, "lead.backs")
    back = house.join(name="desk")
    house.now = 60.0
    house.backs.leave(back)
    house.backs.leave(back)
    joined, left = (record.getMessage() for record in caplog.records)
    assert joined == "back desk (big, websocket) joined"
    assert left.startswith("back desk (big, websocket) left after 60 s: 0 drafts")


def test_the_name_of_a_backs_model_cannot_write_lines_of_the_log(house):
    evil = VocabularyId(fingerprint="same", n_tokens=100, model="small\x1b[31m\n12:00:00 lead INFO: all well")
    assert str(house.join(vocabulary=evil)) == "b (small␛[31m 12:00:00 lead INFO: all well, websocket)"


def test_so_has_one_that_falls_silent(house, caplog):
    house.join("http")
    caplog.set_level(logging.INFO, "lead.backs")
    house.now = HTTP_SILENCE_SECONDS + 1
    assert list(house.backs) == []
    assert "left after 91 s" in caplog.text
