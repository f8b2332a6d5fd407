import pytest

from bench.load import Load
from bench.serve import compare


def load(server, n_clients, speed, read=1.0):
    return Load(server, n_clients, 1, speed, read, 1.0, 1.0, 1.0, 1.0, 1.0)


def test_repeats_become_their_median():
    (record,) = compare([load("lead", 1, speed) for speed in (1.0, 9.0, 3.0)])
    assert record["tokens_per_second"] == 3.0


def test_the_lead_is_compared_with_llama_server_under_the_same_load():
    records = compare([load("lead", 8, 19.0), load("llama-server", 8, 20.0), load("llama-server", 1, 5.0)])
    shares = {(record["server"], record["n_clients"]): record["against_peer"] for record in records}
    assert shares == {("lead", 8): pytest.approx(0.95), ("llama-server", 8): None, ("llama-server", 1): None}


def test_so_is_how_fast_it_reads_prompts():
    lead, _ = compare([load("lead", 8, 1.0, read=900.0), load("llama-server", 8, 1.0, read=1000.0)])
    assert lead["read_against_peer"] == pytest.approx(0.9)
