import ipaddress
import itertools
import random

import pytest

from bench.faults.hostile import ATTACKS, Attacker, identities, n_frames_sent
from shared.errors import ProtocolError
from shared.protocol import MAX_BACK_MESSAGE_BYTES, Close, Draft, Extend, Open, parse_back_message
from shared.sampling.parameters import SamplingParameters

N_VOCAB = 50


@pytest.fixture
def attacker():
    attacker = Attacker(random.Random(1), N_VOCAB)
    attacker.take(Open(sequence="s", sampling=SamplingParameters(seed=1), tokens=[1, 2]).model_dump_json())
    attacker.take(Extend(sequence="s", start=2, tokens=[3]).model_dump_json())
    return attacker


def parsed(frame):
    try:
        return parse_back_message(frame)
    except ProtocolError:
        return None


@pytest.mark.parametrize("name", ["random", "stale", "duplicated", "oversized", "invalid"])
def test_drafts_get_past_the_parser(attacker, name):
    assert all(isinstance(parsed(attacker.attack(name)), Draft) for _ in range(50))


def test_random_drafts_continue_the_committed_tokens(attacker):
    assert {parsed(attacker.attack("random")).base for _ in range(20)} == {3}


def test_stale_drafts_begin_before_all_tokens(attacker):
    assert {parsed(attacker.attack("stale")).base for _ in range(20)} == {0}


def test_most_duplicates_are_exact(attacker):
    assert len({attacker.attack("duplicated") for _ in range(100)}) < 50


def test_oversized_frames_are_just_small_enough(attacker):
    assert MAX_BACK_MESSAGE_BYTES - 3000 < len(attacker.attack("oversized")) <= MAX_BACK_MESSAGE_BYTES


def test_garbage_is_refused(attacker):
    frames = [attacker.attack("garbage") for _ in range(100)]
    assert not any(parsed(frame) for frame in frames)
    assert {type(frame) for frame in frames} == {str, bytes}


def test_a_sequence_that_was_closed_is_not_named_again(attacker):
    attacker.take(Close(sequence="s", reason="stop").model_dump_json())
    assert parsed(attacker.attack("random")).sequence == "nobody"


def test_what_the_lead_says_wrong_is_ignored(attacker):
    attacker.take("nonsense")
    assert set(ATTACKS) == {"random", "stale", "duplicated", "oversized", "invalid", "garbage"}


def test_most_connections_come_from_a_new_address_under_a_new_name():
    used = list(itertools.islice(identities(random.Random(1), has_addresses=True), 200))
    assert 140 < len({identity.name for identity in used}) < 190
    assert 140 < len({identity.address for identity in used}) < 190
    assert all(ipaddress.ip_address(identity.address).is_loopback for identity in used)


def test_some_connections_come_from_the_address_of_the_one_before():
    used = itertools.islice(identities(random.Random(1), has_addresses=True), 200)
    assert sum(first == second for first, second in itertools.pairwise(used)) > 10


def test_without_a_loopback_network_only_names_change():
    assert next(identities(random.Random(1), has_addresses=False)).address is None


def test_what_was_sent_is_read_from_its_log():
    log_text = "12:00 bench.hostile INFO: stale: 12 frames\nelse\nstale: 3 frames\nrandom: 1 frames"
    assert n_frames_sent(log_text) == {"stale": 15, "random": 1}
