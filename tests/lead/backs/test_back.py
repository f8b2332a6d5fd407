from lead.engine.events import Finished, Started
from shared.image_span import ImageSpan, row_identities
from shared.protocol import MAX_TOKENS_PER_MESSAGE, Close, Draft, Extend, Open, Tune
from shared.sampling.call_grammars import CallGrammars
from tests.lead.backs.harness import SAMPLING
from tests.toy_engine import submit


def test_private_sequences_are_not_sent_to_backs(harness):
    back = harness.join()
    secret = harness.sequences.create(submit(tokens=[1, 2, 3]), private=True)
    harness.sequences.apply(Started(sequence=secret.id, n_cached=0), 0.0)
    harness.commit(secret, [4])
    assert harness.backs.updates(back) == []
    harness.backs.take_draft(back, Draft(sequence=secret.id, base=3, tokens=[4]))
    assert (harness.posted, back.stats.n_invalid_drafts) == ([], 1)
    harness.sequences.discard(secret)
    assert harness.backs.updates(back) == []


def test_a_slow_back_gets_missed_tokens_in_one_message(harness):
    sequence, back = harness.followed()
    for token in (4, 5, 6):
        harness.commit(sequence, [token])
    assert harness.backs.updates(back) == [Extend(sequence=sequence.id, start=3, tokens=[4, 5, 6])]


def test_a_back_that_is_not_asked_any_more_gets_no_tokens_and_is_not_listened_to(harness):
    sequence, back = harness.followed()
    harness.commit(sequence, [4])
    asked_backs = harness.backs._assignment._sequences[sequence.id]
    asked_backs.asked = []
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=4, tokens=[8]))
    assert (harness.backs.updates(back), harness.posted) == ([], [])
    asked_backs.asked = [back]
    assert harness.backs.updates(back) == [Extend(sequence=sequence.id, start=3, tokens=[4])]


def test_an_ended_sequence_is_closed_once(harness):
    sequence, back = harness.followed()
    harness.sequences.apply(Finished(sequence=sequence.id, reason="stop"), 0.0)
    assert harness.backs.updates(back) == [Close(sequence=sequence.id, reason="ended")]
    assert harness.backs.updates(back) == []
    assert back.n_asked == 0


def test_a_back_gets_at_most_as_many_sequences_as_it_asked_for(harness):
    sequences = [harness.sequence() for _ in range(3)]
    back = harness.join(n_sequences=2)
    assert [message.sequence for message in harness.backs.updates(back)] == [s.id for s in sequences[:2]]
    harness.sequences.discard(sequences[0])
    assert [(m.type, m.sequence) for m in harness.backs.updates(back)] == [
        ("close", sequences[0].id),
        ("open", sequences[2].id),
    ]


def test_a_long_prompt_is_sent_in_several_messages(harness):
    tokens = [7] * (2 * MAX_TOKENS_PER_MESSAGE + 1)
    harness.sequence(tokens)
    news = harness.backs.updates(harness.join())
    assert [message.type for message in news] == ["open", "extend", "extend"]
    assert [token for message in news for token in message.tokens] == tokens
    assert [message.start for message in news[1:]] == [MAX_TOKENS_PER_MESSAGE, 2 * MAX_TOKENS_PER_MESSAGE]


def test_tune_is_sent_to_each_back_once(harness):
    early = harness.join()
    assert harness.backs.updates(early) == []
    tune = Tune(n_ahead=4, min_confidence=0.25)
    harness.backs.tune(tune)
    assert harness.backs.updates(early) == [tune]
    assert harness.backs.updates(early) == []
    assert harness.backs.updates(harness.join()) == [tune]


async def test_new_sequences_and_their_tokens_wake_a_back(harness):
    back = harness.join()
    created = back.changed.next_change()
    sequence = harness.sequence()
    assert created.is_set()
    committed = back.changed.next_change()
    harness.commit(sequence, [4])
    assert committed.is_set()
    ended = back.changed.next_change()
    harness.sequences.discard(sequence)
    assert ended.is_set()


def test_a_lost_reply_is_sent_again(harness):
    back, sequence = harness.join(transport="http"), harness.sequence()
    ended = harness.sequence()
    back.acknowledge(0)
    harness.backs.updates(back)
    heard = back.number_reply()
    back.acknowledge(heard)
    harness.commit(sequence, [4, 5])
    harness.sequences.discard(ended)
    harness.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    lost = harness.backs.updates(back)
    back.number_reply()
    back.acknowledge(heard)
    assert harness.backs.updates(back) == lost
    assert [message.type for message in lost] == ["tune", "close", "extend"]


def test_a_sequence_is_forgotten_when_the_reply_that_closes_it_has_arrived(harness):
    back, sequence = harness.join(transport="http"), harness.sequence()
    for _ in range(2):
        harness.backs.updates(back)
        back.acknowledge(back.number_reply())
        harness.sequences.discard(sequence)
    assert harness.backs.updates(back) == []
    assert not back.followed


def test_two_lost_replies_are_both_sent_again(harness):
    back, sequence = harness.join(transport="http"), harness.sequence()
    for _ in range(2):
        back.acknowledge(0)
        harness.backs.updates(back)
        back.number_reply()
        harness.commit(sequence, [9])
    back.acknowledge(0)
    assert harness.backs.updates(back) == [
        Open(sequence=sequence.id, sampling=SAMPLING, tokens=[1, 2, 3, 9, 9])
    ]


def test_a_back_is_not_told_the_grammars_of_calls(harness):
    back, sequence = harness.join(), harness.sequence()
    sampling = SAMPLING.model_copy(update={"calls": CallGrammars("<add>", {})})
    sequence.request = sequence.request.model_copy(update={"sampling": sampling})
    (opened,) = [each for each in harness.backs.updates(back) if isinstance(each, Open)]
    assert opened.sampling == SAMPLING


def test_a_back_is_told_what_its_drafts_are_worth_once_that_is_known(harness):
    back, sequence = harness.join(), harness.sequence()
    harness.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    told = [message for message in harness.backs.updates(back) if isinstance(message, Tune)]
    for _ in range(40):
        right = Draft(sequence=sequence.id, base=len(sequence.tokens), tokens=[7, 8, 9])
        harness.backs.take_draft(back, right)
        harness.commit(sequence, [7, 8, 9], n_right={back.name: (3, 0)})
        told += [message for message in harness.backs.updates(back) if isinstance(message, Tune)]
    assert [tune.value for tune in told] == [None, 0.74]


def test_a_sequence_that_ended_before_it_was_opened_is_not_sent(harness):
    back, sequence = harness.join(), harness.sequence()
    harness.sequences.discard(sequence)
    assert not back.followed
    assert harness.backs.updates(back) == []


async def test_tune_wakes_requests_that_wait_for_updates(harness):
    change = harness.join().changed.next_change()
    harness.backs.tune(Tune(n_ahead=4, min_confidence=0.25))
    assert change.is_set()


def test_a_back_gets_a_text_without_its_images_and_counts_so(harness):
    image = ImageSpan(start=2, n_rows=40, n_positions=7, key="a", width=7)
    request = submit(tokens=[1, 2, *row_identities("a", 40), 3], images=(image,))
    sequence, back = harness.sequences.create(request), harness.join()
    (opened,) = harness.backs.updates(back)
    harness.commit(sequence, [4])
    assert opened.tokens == [1, 2, 3]
    assert harness.backs.updates(back) == [Extend(sequence=sequence.id, start=3, tokens=[4])]
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=4, tokens=[8]))
    harness.backs.take_draft(back, Draft(sequence=sequence.id, base=44, tokens=[8]))
    assert [draft.base for draft in harness.posted] == [4]
