"""What the figures of concurrent clients mean, and how llama-server is told to draft."""

from pathlib import Path

import pytest

from bench import peer
from bench.load import Load, digest
from bench.serve import compare
from lead.benchmark.measured_answer import StreamedAnswer

# Several clients


def test_the_digest_is_of_all_clients_together():
    answers = [StreamedAnswer(0.0, [0.1, 0.2], n_tokens=2), StreamedAnswer(0.0, [0.3, 0.6, 0.7], n_tokens=3)]
    got = digest("lead", 2, answers, 2.0)
    assert (got.tokens_per_second, got.n_answers) == (2.5, 2)
    assert (got.first_ms_p50, got.first_ms_p95, got.first_ms_max) == pytest.approx((100, 300, 300))
    assert (got.between_ms_p50, got.between_ms_p95) == pytest.approx((100, 300))


def test_prompts_are_read_until_the_first_text_of_the_last_answer():
    answers = [
        StreamedAnswer(1.0, [2.0, 9.0], n_tokens=2, n_read=30),
        StreamedAnswer(1.5, [5.0, 6.0], n_tokens=2, n_read=50),
        StreamedAnswer(2.0),
    ]
    assert digest("lead", 3, answers, 8.0).read_per_second == pytest.approx(80 / 4)


# llama-server


def test_the_lead_is_compared_with_llama_server_under_the_same_load():
    def load(server, n_clients, speed, read):
        return Load(server, n_clients, 1, speed, read, 1.0, 1.0, 1.0, 1.0, 1.0)

    loads = [load("lead", 8, 19.0, 900.0), load("llama-server", 8, 20.0, 1000.0)]
    lead, server, alone = compare([*loads, load("llama-server", 1, 5.0, 1.0)])
    assert (lead["against_peer"], lead["read_against_peer"]) == pytest.approx((0.95, 0.9))
    assert (server["against_peer"], alone["against_peer"]) == (None, None)


@pytest.mark.parametrize(
    ("help_text", "options"),
    [
        (
            "--spec-draft-n-max N  --spec-type none,draft-simple",
            "--spec-draft-n-max 5 --spec-draft-n-min 0 --spec-type draft-simple",
        ),
        ("--draft-max N", "--draft-max 5 --draft-min 0"),
    ],
)
def test_each_version_is_told_in_its_own_words_to_use_the_draft_model(help_text, options):
    arguments = peer.draft_arguments(help_text, Path("d.gguf"), 5)
    assert arguments == ["-md", "d.gguf", *options.split()]
