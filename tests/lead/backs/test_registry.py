import json
import logging

import pytest

from lead.backs.registry import HTTP_SILENCE_SECONDS
from shared.errors import ProtocolError, UnavailableError
from shared.protocol import PROTOCOL_VERSION, Draft, VocabularyId, parse_back_message
from tests.lead.backs.harness import RegistryHarness


def test_backs_with_the_same_name_get_different_names(harness):
    assert [harness.join(name="desk").name for _ in range(3)] == ["desk", "desk:2", "desk:3"]


@pytest.mark.parametrize("name", ["ngram", "prediction"])
def test_no_back_gets_the_name_of_a_draft_source_in_the_lead(harness, name):
    assert harness.join(name=name).name == f"{name}:2"


def test_a_posted_draft_has_its_branches_confidences_and_time_of_arrival(harness):
    sequence, back = harness.followed()
    harness.now = 7.0
    draft = Draft(sequence=sequence.id, base=3, tokens=[8, 9], parents=[-1, -1], confidences=[0.6, 0.3])
    harness.backs.take_draft(back, draft)
    (posted,) = harness.posted
    assert (posted.parents, posted.confidences, posted.received_at) == ([-1, -1], [0.6, 0.3], 7.0)


def test_no_back_says_who_drafted_or_when_its_draft_came(harness):
    sequence, back = harness.followed(name="desk")
    harness.now = 7.0
    draft = {"type": "draft", "sequence": sequence.id, "base": 3, "tokens": [8]}
    for lie in ({"source": "ngram", "received_at": 1e9}, {"source": [1], "received_at": "never"}):
        harness.backs.take_draft(back, parse_back_message(json.dumps(draft | lie)))
    assert [(posted.source, posted.received_at) for posted in harness.posted] == [("desk", 7.0)] * 2


def test_the_engine_hears_whether_a_back_computes_on_its_cores():
    harness = RegistryHarness()
    harness.join(name="far")
    assert not harness.share_cores
    near = harness.join(name="near", is_local=True)
    assert harness.share_cores
    harness.backs.leave(near)
    assert not harness.share_cores


def test_changes_of_the_connected_backs_are_reported(harness):
    desk, _ = harness.join(name="desk"), harness.join(name="desk")
    assert harness.names == ["desk", "desk:2"]
    harness.backs.leave(desk)
    assert harness.names == ["desk:2"]


def test_a_silent_back_is_no_longer_connected(harness):
    harness.join(name="desk", transport="http")
    harness.now = HTTP_SILENCE_SECONDS + 1
    assert list(harness.backs) == []
    assert harness.names == []


def test_a_silent_back_is_removed_at_the_end_of_a_sequence(harness):
    harness.join(transport="http")
    sequence = harness.sequence()
    harness.now = HTTP_SILENCE_SECONDS + 1
    harness.sequences.discard(sequence)
    assert harness.names == []


def test_another_vocabulary_is_refused_naming_both_models_and_what_to_do(harness):
    theirs = VocabularyId(fingerprint="other", n_tokens=50, model="small")
    with pytest.raises(ProtocolError, match=r"'big' with 100 tokens.*'small' with 50.*translates"):
        harness.join(vocabulary=theirs)


def test_padding_of_the_vocabulary_does_not_matter(harness):
    harness.join(vocabulary=VocabularyId(fingerprint="same", n_tokens=128, model="small"))


def test_another_protocol_is_refused_naming_both(harness):
    with pytest.raises(ProtocolError, match=f"protocol {PROTOCOL_VERSION} and this back uses 99"):
        harness.join(protocol=99)


@pytest.mark.parametrize(("n", "said"), [(1, "1 back."), (2, "2 backs.")])
def test_the_number_of_backs_is_limited(n, said):
    harness = RegistryHarness(max_backs=n)
    first, *_ = [harness.join() for _ in range(n)]
    with pytest.raises(UnavailableError, match=f"maximum of {said}"):
        harness.join()
    harness.backs.leave(first)
    harness.join()


def test_a_silent_websocket_stays_connected(harness):
    back = harness.join(transport="websocket")
    harness.now = 10 * HTTP_SILENCE_SECONDS
    assert list(harness.backs) == [back]


def test_the_report_has_each_back_with_its_stats(harness):
    back = harness.join(name="desk")
    harness.sequence()
    harness.backs.updates(back)
    harness.now = 3.0
    (record,) = harness.backs.describe()
    assert record["name"] == "desk"
    assert (record["model"], record["transport"], record["connected_seconds"]) == ("big", "websocket", 3.0)
    assert (record["n_sequences"], record["n_drafts"]) == (1, 0)


def test_the_name_of_a_model_cannot_forge_log_lines(harness):
    evil = VocabularyId(fingerprint="same", n_tokens=100, model="small\x1b[31m\n12:00:00 lead INFO: all well")
    assert str(harness.join(vocabulary=evil)) == "b (small␛[31m 12:00:00 lead INFO: all well, websocket)"


def test_joining_and_leaving_are_logged(harness, caplog):
    caplog.set_level(logging.INFO, "lead.backs")
    back = harness.join(name="desk")
    harness.now = 60.0
    harness.backs.leave(back)
    harness.backs.leave(back)
    joined, left = (record.getMessage() for record in caplog.records)
    assert joined == "back desk (big, websocket) joined, for texts of up to 64 tokens"
    assert left.startswith("back desk (big, websocket) left after 60 s: 0 drafts")
