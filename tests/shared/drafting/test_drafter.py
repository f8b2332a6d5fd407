import functools
import random

import pytest

from shared.drafting import drafter as drafter_module
from shared.errors import PendingAnswerError, RequestError
from shared.protocol import Close, Draft, Extend, Open, Tune
from shared.sampling.parameters import SamplingParameters
from shared.text_store import PromptCacheSize
from tests.shared.drafting.drafting import LONG, SAMPLED, TEXT, DrafterHarness, drafting
from tests.toy_engine import submit
from tests.toy_model import GREEDY, N_VOCAB, SlowGrammar, ToyGrammar, plain_run, toy_sampler

# Drafting


def test_each_step_adds_one_token_to_a_draft():
    harness = DrafterHarness(n_ahead=3)
    harness.open()
    assert harness.drain() == [
        Draft(sequence="s", base=2, tokens=TEXT[2:3]),
        Draft(sequence="s", base=2, tokens=TEXT[2:4]),
        Draft(sequence="s", base=2, tokens=TEXT[2:5]),
    ]


def test_the_last_token_of_a_complete_draft_is_not_decoded():
    harness = DrafterHarness(n_ahead=3)
    harness.open()
    harness.drain()
    assert harness.model.slots[0] == TEXT[:4], "the last draft token need not be decoded"


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled with penalties"])
def test_a_draft_model_equal_to_the_target_drafts_its_tokens(sampling):
    text, _ = plain_run(submit(tokens=LONG, sampling=sampling), 60)
    harness = DrafterHarness(n_ahead=5)
    harness.open(sampling=sampling)
    for start in range(2, len(text) - 6, 3):
        assert harness.last_draft() == Draft(sequence="s", base=start, tokens=text[start : start + 5])
        harness.extend(start, text[start : start + 3])


# Committed tokens


def test_the_rest_of_a_partly_accepted_draft_is_kept():
    harness = drafting()
    harness.extend(2, TEXT[2:4])
    assert harness.step() == [Draft(sequence="s", base=4, tokens=TEXT[4:7])]


@pytest.mark.parametrize(
    ("tokens", "n_decoded"),
    [(TEXT[2:7], 2), ([TEXT[2], (TEXT[3] + 1) % N_VOCAB], 1)],
    ids=["all four were accepted, and the bonus", "the second was rejected"],
)
def test_accepted_tokens_are_not_decoded_again(tokens, n_decoded):
    harness = drafting()
    n_steps = len(harness.model.steps)
    harness.extend(2, tokens)
    harness.step()
    assert harness.model.steps[n_steps:] == [[n_decoded]]


def test_a_lead_cannot_touch_the_sequences_of_another():
    harness = drafting()
    before = harness.draft()
    for message in (
        Open(sequence="s", sampling=GREEDY, tokens=[1]),
        Extend(sequence="s", start=2, tokens=[1]),
        Close(sequence="s", reason="ended"),
    ):
        harness.drafter.handle(message, group=1)
    harness.drafter.reset(group=1)
    assert harness.draft() == before


def test_a_text_that_never_ends_is_not_followed(monkeypatch, caplog):
    monkeypatch.setattr(drafter_module, "MAX_TEXT_TOKENS", 8)
    harness = DrafterHarness()
    for sequence in ("a", "b"):
        harness.open(sequence)
        harness.extend(len(LONG), [1] * (9 - len(LONG)), sequence)
        assert harness.draft(sequence) is None
        assert harness.drafter.idle
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_sequence_with_missing_tokens_is_dropped():
    harness = drafting()
    harness.extend(9, TEXT[9:12])
    assert harness.drafter.idle
    harness.extend(2, TEXT[2:4])
    assert harness.drafter.idle


def test_a_prompt_may_arrive_in_several_messages():
    harness = DrafterHarness()
    harness.open(tokens=[])
    assert harness.drafter.idle
    harness.extend(0, TEXT[:7])
    harness.extend(7, TEXT[7:12])
    assert harness.last_draft() == Draft(sequence="s", base=12, tokens=TEXT[12:16])


@pytest.mark.parametrize("token", [N_VOCAB, 1 << 30])
def test_a_prompt_with_unknown_tokens_is_not_drafted_for(token):
    harness = DrafterHarness()
    harness.open(tokens=[1, token])
    assert harness.drafter.idle


def test_drafting_stops_at_an_unknown_token():
    harness = drafting()
    harness.extend(2, [N_VOCAB])
    assert harness.drafter.idle


# Several sequences


def test_opening_a_sequence_twice_is_ignored():
    harness = drafting()
    harness.open(tokens=[1, 1])
    assert harness.drafter.idle


def test_sequences_that_exceed_the_batch_size_take_turns():
    harness = DrafterHarness(n_slots=3, n_batch=2, n_ahead=2)
    for name in "stu":
        harness.open(name)
    assert {draft.sequence for draft in harness.drain() if draft.tokens == TEXT[2:4]} == set("stu")


def test_a_long_prompt_does_not_delay_other_drafts():
    harness = DrafterHarness(n_chunk=3, n_ahead=9)
    harness.open("s")
    harness.step()
    harness.open("t", [4] * 12)
    assert [draft.sequence for draft in harness.step()] == ["s"]
    assert harness.model.steps[-1] == [4, 1]


# Caches that outlive their sequences


def test_a_prompt_that_arrives_in_parts_reuses_a_whole_cache():
    harness = DrafterHarness(n_ahead=1)
    harness.open(tokens=TEXT[:40])
    harness.drain()
    harness.close()
    harness.model.steps.clear()
    harness.open("t", TEXT[:10])
    harness.extend(10, TEXT[10:20], "t")
    harness.extend(20, [*TEXT[20:40], 9], "t")
    harness.drain()
    assert sum(map(sum, harness.model.steps)) == 1


def test_the_last_token_is_decoded_even_if_it_is_cached():
    harness = drafting()
    harness.close()
    harness.open("t", TEXT[:4])
    harness.step()
    assert harness.model.steps[-1] == [1]


def test_a_short_common_prefix_does_not_overwrite_a_longer_cache():
    harness = DrafterHarness(n_ahead=1)
    for name, own in ("s", 5), ("t", 6), ("u", 5):
        harness.open(name, [1, 4, *[own] * 10])
        harness.drain()
        harness.close(name)
    assert harness.model.steps == [[12], [12], [1]]


def test_a_long_text_is_loaded_in_parts_between_which_others_are_drafted_for():
    harness = DrafterHarness(prompt_cache=PromptCacheSize(500, 1, n_part=15))
    harness.open(tokens=[4] * 60)
    harness.drain()
    harness.close()
    harness.open("t", [5])
    for _ in range(5):
        harness.step()
    harness.close("t")
    harness.open("u")
    harness.open("v", [4] * 61)
    others = [{draft.sequence for draft in harness.step()} for _ in range(6)]
    assert others[:3] == [{"u"}] * 3
    assert others[3] == {"u", "v"}
    assert harness.model.steps[-3] == [1, 1], "of v, one token was decoded"
    assert harness.draft("v").tokens[0] == plain_run(submit(tokens=[4] * 61), 62)[0][-1]


# A window shorter than the text


def test_only_the_end_of_a_prompt_longer_than_the_window_is_decoded():
    harness = DrafterHarness(n_window=10, n_ahead=1)
    harness.open(tokens=TEXT[:60])
    harness.drain()
    assert harness.model.slots[0] == TEXT[55:60]


def test_a_full_window_slides_by_half():
    harness = DrafterHarness(n_window=10, n_ahead=1)
    harness.open(tokens=TEXT[:9])
    harness.drain()
    harness.extend(9, TEXT[9:10])
    harness.drain()
    assert harness.model.slots[0] == TEXT[5:10]


def test_the_cache_of_a_window_is_not_reused_as_a_prefix():
    harness = DrafterHarness(n_slots=1, n_window=10, n_ahead=1)
    harness.open(tokens=TEXT[:60])
    harness.drain()
    harness.close()
    harness.open("t", TEXT[55:59])
    harness.step()
    assert harness.model.steps[-1] == [4]


def test_a_window_that_begins_inside_a_rejected_draft_is_decoded_again():
    harness = DrafterHarness(n_slots=1, n_window=6, n_ahead=9)
    harness.open(tokens=[4])
    wrong = (harness.last_draft().tokens[0] + 1) % N_VOCAB
    harness.extend(1, [wrong])
    right, _ = plain_run(submit(tokens=[4, wrong]), 3)
    assert harness.step() == [Draft(sequence="s", base=2, tokens=right[2:])]


class FailingSampler:
    """A sampler that raises RequestError in one method."""

    def __init__(self, sampler, method):
        self._sampler, self._method = sampler, method

    def __getattr__(self, name):
        if name == self._method:
            raise RequestError("too complex", "grammar")
        return getattr(self._sampler, name)


@pytest.mark.parametrize("method", ["rank", "rewind", "make"])
def test_a_sequence_whose_sampler_fails_is_dropped(method):
    def make(sampling, history, _like=None):
        if sampling is not SAMPLED:
            return toy_sampler(sampling, history)
        if method == "make":
            raise ValueError("no such grammar")
        return FailingSampler(toy_sampler(sampling, history), method)

    harness = DrafterHarness(n_branches=2)
    harness.drafter._make_sampler = make
    harness.open("bad", sampling=SAMPLED)
    harness.open()
    harness.drain()
    harness.extend(2, [9], "bad")
    harness.extend(2, TEXT[2:4])
    assert harness.last_draft().sequence == "s"
    harness.drafter.check_integrity()
    assert harness.draft("bad") is None


CONSTRAINED = SamplingParameters(seed=3, temperature=0.9, grammar="any")


def following(follow, **options):
    """A drafter that asks `follow(grammar)` instead of each grammar."""
    return DrafterHarness(make_sampler=functools.partial(toy_sampler, follow=follow), **options)


@pytest.mark.parametrize("seed", range(10))
def test_grammars_that_answer_late_do_not_change_the_draft(seed):
    rng = random.Random(seed)
    harness = following(lambda grammar: SlowGrammar(grammar, rng), n_branches=2, n_ahead=6)
    text, _ = plain_run(submit(tokens=[4, 2], sampling=CONSTRAINED), 40)
    harness.open(tokens=text[:2], sampling=CONSTRAINED)
    for base in range(2, len(text) - 7, 2):
        draft = harness.last_draft()
        assert draft.tokens[: len(text) - base][:6] == text[base : base + 6]
        harness.drafter.check_integrity()
        harness.extend(base, text[base : base + 2])


class Unanswered(ToyGrammar):
    """Answers no question."""

    is_ready = False

    def allows(self, _tokens):
        raise PendingAnswerError("wait")


def test_a_grammar_that_does_not_answer_holds_up_only_its_own_sequence():
    harness = following(lambda _: Unanswered())
    harness.open("slow", sampling=CONSTRAINED)
    harness.open("t")
    drafts = [draft for _ in range(6) for draft in harness.step()]
    assert drafts[-1].tokens == TEXT[2:6]
    assert {draft.sequence for draft in drafts} == {"t"}
    assert not harness.drafter.idle, "the answer is still to come"


def test_a_committed_token_ends_the_wait_for_an_answer():
    harness = following(lambda _: Unanswered())
    harness.open("slow", sampling=CONSTRAINED)
    harness.step()
    harness.extend(2, [4, 5], "slow")
    harness.step()
    harness.drafter.check_integrity()
    harness.close("slow")
    assert harness.drafter.idle


def test_each_group_is_tuned_and_dropped_by_itself():
    harness = DrafterHarness(n_slots=3, n_ahead=8)
    drafter = harness.drafter
    drafter.handle(Tune(n_ahead=2, min_confidence=0), 1)
    for group, sequence in ((0, "a"), (1, "b"), (1, "c")):
        drafter.handle(Open(sequence=sequence, sampling=GREEDY, tokens=LONG), group)
    assert drafter.waiting == {0: ["a"], 1: ["b", "c"]}
    harness.drain()
    assert [len(drafter.sequences[sequence].main.ranked) for sequence in "abc"] == [8, 2, 2]
    drafter.handle(Tune(n_ahead=4, min_confidence=0), 1)
    assert drafter.waiting == {1: ["b", "c"]}
    drafter.reset(1)
    assert list(drafter.sequences) == ["a"]


def test_a_step_counts_its_tokens_by_group():
    harness = DrafterHarness(n_slots=2, n_ahead=4)
    for group, sequence in ((0, "a"), (1, "b")):
        harness.drafter.handle(Open(sequence=sequence, sampling=GREEDY, tokens=LONG), group)
    harness.drafter.step()
    assert harness.drafter.n_decoded == {0: len(LONG), 1: len(LONG)}
    harness.drafter.step(only={"b"})
    assert harness.drafter.n_decoded == {1: 1}


def test_right_and_wrong_draft_tokens_are_counted():
    harness = drafting()
    wrong = (TEXT[4] + 1) % N_VOCAB
    assert harness.drafter.handle(Extend(sequence="s", start=2, tokens=[*TEXT[2:4], wrong])) == (2, 1)
    harness.drain()
    assert harness.drafter.handle(Extend(sequence="s", start=5, tokens=[])) == (0, 0)
    tokens = harness.draft().tokens
    assert harness.drafter.handle(Extend(sequence="s", start=5, tokens=[*tokens, 1])) == (4, 0)
