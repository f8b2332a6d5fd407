import ipaddress
import itertools
import random

import pytest

from bench.hostile import HostileMessages, KnownSequences, identities, n_frames_sent
from shared.errors import ProtocolError
from shared.protocol import (
    MAX_BACK_MESSAGE_BYTES,
    Close,
    Draft,
    Extend,
    Open,
    VocabularyId,
    parse_back_message,
)
from shared.sampling.parameters import SamplingParameters

OPEN = Open(sequence="s", sampling=SamplingParameters(seed=1), tokens=[1, 2])
EXTEND = Extend(sequence="s", start=2, tokens=[3])
KNOWN = {"s": 3}
VOCABULARY = VocabularyId(fingerprint="f", n_tokens=50, model="m")


@pytest.fixture
def messages():
    return HostileMessages(random.Random(1), VOCABULARY)


def parsed(frame):
    try:
        return parse_back_message(frame)
    except ProtocolError:
        return None


def test_what_the_lead_says_of_sequences_is_followed():
    known = KnownSequences()
    for message in (OPEN, EXTEND):
        known.follow(message)
    assert known == KNOWN
    known.follow(Close(sequence="s", reason="stop"))
    assert known == {}


@pytest.mark.parametrize(
    ("attack", "bases"),
    [("sure", {3}), ("stale", {0}), ("duplicated", {3}), ("oversized", {3}), ("invalid", {3, (1 << 31) - 1})],
)
def test_drafts_get_past_the_parser(messages, attack, bases):
    frames = [messages.frame(KNOWN, attack) for _ in range(50)]
    assert {parsed(frame).base for frame in frames} == bases
    assert max(map(len, frames)) <= MAX_BACK_MESSAGE_BYTES
    assert (min(map(len, frames)) > MAX_BACK_MESSAGE_BYTES - 3000) == (attack == "oversized")


def test_most_duplicates_are_exact(messages):
    assert len({messages.frame(KNOWN, "duplicated") for _ in range(100)}) < 50


def test_most_garbage_is_refused(messages):
    frames = [messages.frame(KNOWN, "garbage") for _ in range(100)]
    assert sum(parsed(frame) is None for frame in frames) > 80
    assert {type(frame) for frame in frames} == {str, bytes}


def test_most_of_the_mixture_is_read_and_some_is_right(messages):
    told = HostileMessages(random.Random(1), VOCABULARY, [7] * 100)
    drafts = [parsed(told.frame(KNOWN)) for _ in range(200)]
    right = [draft for draft in drafts if isinstance(draft, Draft) and draft.tokens[0] == 7]
    assert 100 < len(right) < 200
    assert sum(isinstance(parsed(messages.frame(KNOWN)), Draft) for _ in range(200)) > 150


def test_most_connections_come_from_a_new_address_under_a_new_name():
    used = list(itertools.islice(identities(random.Random(1), has_addresses=True), 200))
    assert 140 < len({identity.name for identity in used}) < 190
    assert 140 < len({identity.address for identity in used}) < 190
    assert all(ipaddress.ip_address(identity.address).is_loopback for identity in used)


def test_some_connections_come_from_the_address_of_the_one_before():
    used = itertools.islice(identities(random.Random(1), has_addresses=True), 200)
    assert sum(first == second for first, second in itertools.pairwise(used)) > 10


def test_what_was_sent_is_read_from_its_log():
    log_text = "12:00 bench.hostile INFO: stale: 12 frames\nelse\nstale: 3 frames\nrandom: 1 frames"
    assert n_frames_sent(log_text) == {"stale": 15, "random": 1}
