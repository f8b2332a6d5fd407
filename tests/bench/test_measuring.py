"""What the figures of the benches mean, and that ways to answer are compared under the same conditions."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bench import peer
from bench.client import Measurement, n_timed, read
from bench.contest import Run, Way, Workload, run_contest
from bench.load import Load, Stay, digest
from bench.prompts import Prompt, draw
from bench.serve import compare
from bench.summary import BASELINE, summarize

STORY, LIST = Prompt("stories", "s", 1), Prompt("lists", "l", 2)

# One answer


def test_an_answer_is_read():
    timings = {
        "predicted_n": 9,
        "predicted_ms": 500.0,
        "predicted_per_second": 12.0,
        "draft_n": 8,
        "draft_n_accepted": 6,
    }
    measured = read({"choices": [{"message": {"content": "Once"}}], "timings": timings})
    assert measured == Measurement("Once", 9, 0.5, 8, 6, n_first=3)
    assert (measured.n_steps, replace(measured, n_counted=4).n_steps) == (2, 3)


@pytest.mark.parametrize(
    ("rate", "n", "what"),
    [(46.0, 23, "the lead's rate"), (78.0, 39, "llama-server's, with the first token"), (0.0, 0, "one step")],
)
def test_tokens_are_timed_after_the_first_step(rate, n, what):
    timings = {"predicted_n": 40, "predicted_ms": 500.0, "predicted_per_second": rate}
    assert n_timed(timings) == n, what


# Several ways to answer


@contextmanager
def nothing():
    yield


def contest(*ways):
    """The runs of ways, (name, with backs), and (name, whether backs were there, prompt) of each question."""
    connected, asked = [False], []

    @contextmanager
    def connect():
        connected[0] = True
        yield
        connected[0] = False

    def way(name, with_backs):
        def ask(prompt):
            asked.append((name, connected[0], prompt))
            return Measurement(name, 1, 1.0)

        return Way(name, ask, with_backs)

    workload = Workload(kinds=["stories", "lists"], n_each=2, n_repeats=2, seed=3)
    return run_contest([way(*each) for each in ways], workload, connect), asked


def test_every_way_answers_the_same_prompts():
    _, asked = contest(("a", False), ("b", True), ("c", True))
    prompts = [{prompt for way, _, prompt in asked if way == name} for name in "abc"]
    assert prompts == [prompts[0]] * 3
    assert len(prompts[0]) == 8


def test_backs_are_there_exactly_for_the_ways_that_have_them():
    _, asked = contest(("a", False), ("b", True))
    assert {(name, connected) for name, connected, _ in asked} == {("a", False), ("b", True)}


def test_which_half_comes_first_alternates():
    runs, _ = contest(("a", False), ("b", True))
    assert (runs[0].way, runs[8].way) == ("a", "b")


def test_each_repeat_has_prompts_of_its_own():
    runs, _ = contest(("a", False))
    first, second = ({run.prompt for run in runs if run.repeat == repeat} for repeat in (0, 1))
    assert not first & second


def test_the_order_of_the_ways_is_shuffled():
    runs, _ = contest(*((name, True) for name in "abcd"))
    orders = {tuple(run.way for run in runs[i : i + 4]) for i in range(0, len(runs), 4)}
    assert len(orders) > 1
    assert all(sorted(order) == list("abcd") for order in orders)


def test_another_seed_draws_fresh_prompts():
    for kind in ("stories", "copying", "lists"):
        texts = [{prompt.text for prompt in draw([kind], 5, seed)} for seed in range(4)]
        assert len(set.union(*texts)) > 15, kind


def run(way, repeat, seconds, prompt=STORY, text="t", **fields):
    return Run(way, repeat, prompt, Measurement(text, 11, seconds, **fields))


def row(runs, way):
    return next(row for row in summarize("cell", runs) if row.way == way)


def test_tokens_per_second_are_the_median_of_the_repeats_without_the_first_token():
    got = row([run("x", 0, 1.0), run("x", 1, 2.0), run("x", 2, 10.0)], "x")
    assert (got.tokens_per_second, got.low, got.high) == (5, 1, 10)


def test_the_speedup_compares_within_each_repeat():
    """A machine that was twice as slow in the second repeat changes nothing."""
    runs = [run(BASELINE, 0, 2.0), run("x", 0, 1.0), run(BASELINE, 1, 4.0), run("x", 1, 2.0)]
    assert row(runs, "x").speedup == pytest.approx(2.0)


def test_depth_and_acceptance_are_per_step():
    """Ten tokens after the first, six of them drafted: four steps."""
    got = row([run("x", 0, 1.0, n_drafted=8, n_accepted=6)], "x")
    assert (got.mean_depth, got.accepted_per_step, got.accepted_share) == (2.0, 1.5, 0.75)


def test_same_texts_are_counted_per_prompt_and_repeat():
    texts = [(BASELINE, STORY, "a"), (BASELINE, LIST, "b"), ("x", STORY, "a"), ("x", LIST, "c")]
    got = row([run(way, 0, 1.0, prompt, text) for way, prompt, text in texts], "x")
    assert (got.n_same_text, got.n_texts) == (1, 2)


# Several clients


def test_only_text_is_an_arrival_and_what_was_cached_is_not_read():
    def text(content):
        return {"choices": [{"delta": {"content": content}}]}

    usage = {"completion_tokens": 4, "prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 10}}
    stay = Stay(asked_at=1.0)
    for event, at in [(text(""), 2.0), (text("a"), 3.0), (text("b"), 3.5), ({"usage": usage}, 4.0)]:
        stay.take({"choices": []} | event, at)
    assert (stay.to_first, stay.gaps, stay.n_tokens, stay.n_read) == (2.0, [0.5], 4, 40)


def test_the_digest_is_of_all_clients_together():
    stays = [Stay(0.0, [0.1, 0.2], 2), Stay(0.0, [0.3, 0.6, 0.7], 3)]
    got = digest("lead", 2, stays, 2.0)
    assert (got.tokens_per_second, got.n_answers) == (2.5, 2)
    assert (got.first_ms_p50, got.first_ms_p95, got.first_ms_max) == pytest.approx((100, 300, 300))
    assert (got.between_ms_p50, got.between_ms_p95) == pytest.approx((100, 300))


def test_prompts_are_read_until_the_first_text_of_the_last_answer():
    stays = [Stay(1.0, [2.0, 9.0], 2, n_read=30), Stay(1.5, [5.0, 6.0], 2, n_read=50), Stay(2.0)]
    assert digest("lead", 3, stays, 8.0).read_per_second == pytest.approx(80 / 4)


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


def test_each_server_accepts_a_token_as_often_as_all_up_to_it_are_right(monkeypatch):
    started = []
    monkeypatch.setattr(peer, "help_text", lambda _binary: "--draft-max N")
    monkeypatch.setattr(peer, "Peer", lambda *_, extra: started.append(extra) or nothing())
    with ExitStack() as stack:
        paths = (Path("llama-server"), Path("t.gguf"), Path("d.gguf"))
        peer.start_peers(stack, *paths, "0", depths=[1, 3], rate=0.8)
    assert [extra[-1] if extra else None for extra in started] == [None, "0.8000", "0.8000,0.6400,0.5120"]
