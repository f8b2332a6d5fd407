"""The drafter: follows committed tokens, drafts ahead of them, and never trips over its own cache."""

import pytest

from shared.errors import GrammarTooSlowError
from shared.protocol import Draft
from shared.sampling.sampler import SamplingParameters
from tests.back.drafting import LONG, SAMPLED, TEXT, Bench, drafting
from tests.fakes import GREEDY, N_VOCAB, plain_run, submit, toy_sampler

# Drafting


def test_without_sequences_there_is_nothing_to_do():
    bench = Bench()
    assert bench.drafter.idle
    assert bench.step() == []


def test_a_draft_grows_by_one_token_a_step():
    bench = Bench(n_ahead=3)
    bench.open()
    assert bench.drain() == [
        Draft(sequence="s", base=2, tokens=TEXT[2:3]),
        Draft(sequence="s", base=2, tokens=TEXT[2:4]),
        Draft(sequence="s", base=2, tokens=TEXT[2:5]),
    ]


def test_nothing_is_decoded_for_tokens_beyond_n_ahead():
    bench = Bench(n_ahead=3)
    bench.open()
    bench.drain()
    assert bench.model.slots[0] == TEXT[:4], "the last draft token need not be decoded"


def test_nothing_is_drafted_behind_an_end_token():
    text, reason = plain_run(submit(tokens=[0, 1]), 100)
    assert reason == "stop"
    bench = Bench(n_ahead=9)
    bench.open(tokens=text[:-3])
    assert bench.last_draft().tokens == text[-3:]


def test_a_prompt_that_ends_with_an_end_token_is_continued():
    bench = Bench()
    bench.open(tokens=[4, 3])
    assert bench.drain()


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled with penalties"])
def test_a_model_equal_to_the_target_drafts_the_target_s_tokens(sampling):
    text, _ = plain_run(submit(tokens=LONG, sampling=sampling), 60)
    bench = Bench(n_ahead=5)
    bench.open(sampling=sampling)
    for start in range(2, len(text) - 6, 3):
        assert bench.last_draft() == Draft(sequence="s", base=start, tokens=text[start : start + 5])
        bench.extend(start, text[start : start + 3])


# Following


def test_an_accepted_beginning_leaves_the_rest_of_the_draft():
    bench = drafting()
    bench.extend(2, TEXT[2:4])
    assert bench.step() == [Draft(sequence="s", base=4, tokens=TEXT[4:7])]


def test_an_accepted_draft_costs_no_second_decode():
    bench = drafting()
    n_steps = len(bench.model.steps)
    bench.extend(2, TEXT[2:7])  # all four, and the bonus
    bench.step()
    assert bench.model.steps[n_steps:] == [[2]]


def test_a_rejected_draft_is_dropped_and_drafted_anew():
    wrong = (TEXT[3] + 1) % N_VOCAB
    right, _ = plain_run(submit(tokens=[*TEXT[:3], wrong]), 9)
    bench = drafting()
    bench.extend(2, [TEXT[2], wrong])
    assert bench.last_draft() == Draft(sequence="s", base=4, tokens=right[4:8])
    assert bench.model.slots[0][:4] == right[:4]


def test_after_a_rejection_only_what_is_new_is_decoded():
    bench = drafting()
    n_steps = len(bench.model.steps)
    bench.extend(2, [TEXT[2], (TEXT[3] + 1) % N_VOCAB])
    bench.step()
    assert bench.model.steps[n_steps:] == [[1]]


def test_a_rejected_draft_is_forgotten_by_the_penalties():
    sampling = SamplingParameters(seed=0, temperature=0, presence_penalty=100)
    bench = Bench(n_ahead=12)
    bench.open(sampling=sampling)
    rejected = bench.last_draft().tokens
    bench.extend(2, [8])
    right, _ = plain_run(submit(tokens=[*LONG, 8], sampling=sampling), 9)
    assert rejected[0] != 8
    assert set(rejected).intersection(right[3:])
    assert bench.last_draft().tokens[:6] == right[3:]


def test_what_is_told_twice_changes_nothing():
    bench = drafting()
    bench.extend(0, TEXT[:2])
    assert bench.drafter.idle
    bench.extend(2, TEXT[2:4])
    bench.extend(2, TEXT[2:4])
    assert bench.last_draft() == Draft(sequence="s", base=4, tokens=TEXT[4:8])


def test_of_what_is_told_again_the_new_part_counts():
    bench = drafting()
    bench.extend(0, TEXT[:5])
    assert bench.last_draft() == Draft(sequence="s", base=5, tokens=TEXT[5:9])


def test_a_sequence_with_a_gap_is_left_alone():
    bench = drafting()
    bench.extend(9, TEXT[9:12])
    assert bench.drafter.idle
    bench.extend(2, TEXT[2:4])
    assert bench.drafter.idle


def test_a_prompt_may_arrive_in_pieces():
    bench = Bench()
    bench.open(tokens=[])
    assert bench.drafter.idle
    bench.extend(0, TEXT[:7])
    bench.extend(7, TEXT[7:12])
    assert bench.last_draft() == Draft(sequence="s", base=12, tokens=TEXT[12:16])


@pytest.mark.parametrize("token", [N_VOCAB, 1 << 30])
def test_a_text_with_tokens_that_the_model_does_not_know_is_not_followed(token):
    bench = Bench()
    bench.open(tokens=[1, token])
    assert bench.drafter.idle


def test_a_text_that_comes_to_an_unknown_token_is_followed_no_further():
    bench = drafting()
    bench.extend(2, [N_VOCAB])
    assert bench.drafter.idle


def test_news_of_an_unknown_sequence_is_ignored():
    bench = Bench()
    bench.extend(2, [1], sequence="unknown")
    bench.close("unknown")
    assert bench.drafter.idle


# Several sequences


def test_sequences_are_drafted_together():
    bench = Bench()
    bench.open("s")
    bench.open("t")
    assert [draft.sequence for draft in bench.step()] == ["s", "t"]
    assert bench.model.steps == [[2, 2]]


def test_a_sequence_beyond_the_slots_is_left_alone():
    bench = Bench(n_slots=1)
    bench.open("s")
    bench.open("t", [1, 1])
    bench.extend(2, [1], sequence="t")
    assert {draft.sequence for draft in bench.drain()} == {"s"}


def test_a_second_opening_of_a_sequence_is_ignored():
    bench = drafting()
    bench.open(tokens=[1, 1])
    assert bench.drafter.idle


def test_more_sequences_than_a_batch_has_places_take_turns():
    bench = Bench(n_slots=3, n_batch=2, n_ahead=2)
    for name in "stu":
        bench.open(name)
    assert {draft.sequence for draft in bench.drain() if draft.tokens == TEXT[2:4]} == set("stu")


def test_a_long_prompt_does_not_hold_up_another_s_draft():
    bench = Bench(n_chunk=3, n_ahead=9)
    bench.open("s")
    bench.step()
    bench.open("t", [4] * 12)
    assert [draft.sequence for draft in bench.step()] == ["s"]
    assert bench.model.steps[-1] == [1, 4]


def test_a_long_prompt_fills_the_batch_while_nobody_drafts():
    bench = Bench(n_chunk=3, n_batch=8)
    bench.open("t", [4] * 12)
    bench.step()
    assert bench.model.steps == [[8]]


# Caches that outlive their sequences


def test_a_text_that_continues_a_closed_one_finds_it_cached():
    bench = drafting()
    bench.close()
    bench.open("t", TEXT[:9])
    bench.step()
    assert bench.model.steps[-1] == [4]  # TEXT[:5] was there


def test_a_long_text_that_arrives_in_parts_finds_all_of_it_cached():
    bench = Bench(n_ahead=1)
    bench.open(tokens=TEXT[:40])
    bench.drain()
    bench.close()
    bench.model.steps.clear()
    bench.open("t", TEXT[:10])
    bench.extend(10, TEXT[10:20], "t")
    bench.extend(20, [*TEXT[20:40], 9], "t")
    bench.drain()
    assert sum(map(sum, bench.model.steps)) == 1


def test_what_another_text_left_is_not_taken_for_ones_own():
    bench = Bench(n_ahead=1)
    bench.open(tokens=TEXT[:40])
    bench.drain()
    bench.close()
    bench.open("t", TEXT[:10])
    bench.extend(10, [9, 4, *TEXT[12:20]], "t")
    bench.drain()
    bench.drafter.check_integrity()
    assert bench.model.slots[bench.drafter._followed["t"].main.cache.index][:20] == [
        *TEXT[:10],
        9,
        4,
        *TEXT[12:20],
    ]


def test_the_last_token_is_decoded_even_if_it_is_cached():
    bench = drafting()
    bench.close()
    bench.open("t", TEXT[:4])
    bench.step()
    assert bench.model.steps[-1] == [1]


def test_after_a_lost_connection_the_same_texts_cost_nothing():
    bench = drafting()
    bench.drafter.reset()
    assert bench.drafter.idle
    bench.open()
    assert bench.last_draft() == Draft(sequence="s", base=2, tokens=TEXT[2:6])
    assert bench.model.steps[4] == [1]


def test_a_common_beginning_alone_overwrites_no_other_text():
    bench = Bench(n_ahead=1)
    for name, own in ("s", 5), ("t", 6), ("u", 5):
        bench.open(name, [1, 4, *[own] * 10])
        bench.drain()
        bench.close(name)
    assert bench.model.steps == [[12], [12], [1]]


# A window shorter than the text


def test_a_text_longer_than_the_window_is_drafted_to_its_end():
    bench = Bench(n_window=10, n_ahead=3)
    bench.open(tokens=TEXT[:60])
    for start in range(60, 90):
        assert len(bench.last_draft().tokens) == 3
        bench.extend(start, TEXT[start : start + 1])


def test_a_text_longer_than_the_window_is_read_from_its_end():
    bench = Bench(n_window=10, n_ahead=1)
    bench.open(tokens=TEXT[:60])
    bench.drain()
    assert bench.model.slots[0] == TEXT[55:60]


def test_a_full_window_keeps_its_later_half():
    bench = Bench(n_window=10, n_ahead=1)
    bench.open(tokens=TEXT[:9])
    bench.drain()
    bench.extend(9, TEXT[9:10])
    bench.drain()
    assert bench.model.slots[0] == TEXT[5:10]


def test_a_window_is_no_beginning_of_another_text():
    bench = Bench(n_slots=1, n_window=10, n_ahead=1)
    bench.open(tokens=TEXT[:60])
    bench.drain()
    bench.close()
    bench.open("t", TEXT[55:59])
    bench.step()
    assert bench.model.steps[-1] == [4]


def test_a_window_that_begins_inside_a_rejected_draft_moves_back():
    bench = Bench(n_slots=1, n_window=6, n_ahead=9)
    bench.open(tokens=[4])
    wrong = (bench.last_draft().tokens[0] + 1) % N_VOCAB
    bench.extend(1, [wrong])
    right, _ = plain_run(submit(tokens=[4, wrong]), 3)
    assert bench.step() == [Draft(sequence="s", base=2, tokens=right[2:])]


class Choking:
    """A sampler of which some method fails."""

    def __init__(self, sampler, method):
        self._sampler, self._method = sampler, method

    def __getattr__(self, name):
        if name == self._method:
            raise GrammarTooSlowError("too many ways", "grammar")
        return getattr(self._sampler, name)


@pytest.mark.parametrize("method", ["rank", "rewind", "make"])
def test_a_sequence_whose_tokens_cannot_be_chosen_is_left_alone(method):
    def make(sampling, history, _like=None):
        if sampling is not SAMPLED:
            return toy_sampler(sampling, history)
        if method == "make":
            raise ValueError("no such grammar")
        return Choking(toy_sampler(sampling, history), method)

    bench = Bench(n_branches=2)
    bench.drafter._make_sampler = make
    bench.open("bad", sampling=SAMPLED)
    bench.open()
    bench.drain()
    bench.extend(2, [9], "bad")
    bench.extend(2, TEXT[2:4])
    assert bench.last_draft().sequence == "s"
    bench.drafter.check_integrity()
    assert bench.drafter.draft("bad") is None
