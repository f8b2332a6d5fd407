"""The scheduler: who runs, what goes into a step, and what the step's logits mean.

The tests that follow one sequence use prompts whose continuations are known to be long, see LONG.
"""

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lead.engine.edit import carry_out
from lead.engine.messages import Committed, DraftsDropped, Failed, Finished, PostDraft, Started, Tuned
from lead.engine.speculation.policy import SYNC_PATIENCE_S
from shared.errors import GrammarTooSlowError
from shared.llama.span import Span
from shared.sampling.sampler import SamplingParameters
from tests.fakes import END_TOKENS, N_VOCAB, FakeTarget, make_limits, make_scheduler, plain_run, submit

LONG = (0, 2)
"""A prompt whose greedy continuation fills a context of 100 tokens."""
OTHER = (9, 4)
NOW = 1.0
TEXT, _ = plain_run(submit(tokens=LONG), 100)


class Bench:
    """A scheduler and a model, stepped by hand."""

    def __init__(self, depth=4, policy="fixed", **limits):
        self.limits = make_limits(**limits)
        self.scheduler = make_scheduler(self.limits, depth, policy)
        self.target = FakeTarget(self.limits.n_slots, self.limits.n_ctx, self.limits.n_batch)
        self.spans = []
        self.now = NOW

    def step(self):
        """The events of one step, after any waits in vain; its spans are in `spans`."""
        plan = self.scheduler.plan(self.now)
        news = plan.news
        while plan.wait > 0:
            self.now += plan.wait
            assert self.now < 1000 * NOW, "it waits for ever"
            plan = self.scheduler.plan(self.now)
            news += plan.news
        carry_out(plan.edits, self.target)
        events = [*news, *self.scheduler.commit(plan, self.target.decode(plan.spans), self.now, 0.01)]
        self.spans = plan.spans
        self.scheduler.check_integrity()
        return events

    def drain(self):
        """The events of all steps until nothing is left to do."""
        events = []
        while not self.scheduler.idle:
            events += self.step()
        return events

    def submit(self, *args, **kwargs):
        self.scheduler.submit(submit(*args, **kwargs), NOW)

    def complete(self, *args, **kwargs):
        """Run a sequence to its end; returns how much of its prompt was cached."""
        self.submit(*args, **kwargs)
        (started,) = of(Started, self.drain())
        return started.n_cached


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def text_of(events, sequence="s"):
    return [token for step in of(Committed, events) if step.sequence == sequence for token in step.tokens]


def names(events, kind=Started):
    return [event.sequence for event in of(kind, events)]


# Limits


def test_a_batch_has_room_for_every_slot():
    with pytest.raises(ValueError, match="one token of every slot"):
        make_scheduler(make_limits(n_slots=3, n_batch=2))


def test_the_cache_has_room_for_one_whole_sequence():
    make_scheduler(make_limits(n_ctx=99, n_ctx_sequence=100))
    with pytest.raises(ValueError, match="one whole sequence"):
        make_scheduler(make_limits(n_ctx=98, n_ctx_sequence=100))


@pytest.mark.parametrize("n_prompt", [0, 100])
def test_a_prompt_that_leaves_no_room_for_a_token_is_a_bug_of_the_front(n_prompt):
    with pytest.raises(AssertionError):
        Bench().submit(tokens=[1] * n_prompt)


# One sequence


def test_without_sequences_there_is_nothing_to_plan():
    scheduler = Bench().scheduler
    assert scheduler.idle
    assert scheduler.plan(NOW) is None


def test_a_sequence_ends_with_the_context():
    bench = Bench()
    bench.submit(tokens=LONG)
    events = bench.drain()
    assert [*LONG, *text_of(events)] == TEXT
    assert events[-1] == Finished(sequence="s", reason="length")


def test_a_sequence_ends_with_its_token_limit():
    bench = Bench()
    bench.submit(tokens=LONG, max_tokens=5)
    events = bench.drain()
    assert text_of(events) == TEXT[2:7]
    assert events[-1] == Finished(sequence="s", reason="length")


def test_a_sequence_ends_with_an_end_token():
    text, reason = plain_run(submit(tokens=[0, 1]), 100)
    assert reason == "stop"
    bench = Bench()
    bench.submit(tokens=[0, 1])
    events = bench.drain()
    assert text_of(events) == text[2:]
    assert events[-1] == Finished(sequence="s", reason="stop")


def test_an_end_token_at_the_token_limit_is_a_stop():
    text, _ = plain_run(submit(tokens=[0, 1]), 100)
    bench = Bench()
    bench.submit(tokens=[0, 1], max_tokens=len(text) - 2)
    assert bench.drain()[-1] == Finished(sequence="s", reason="stop")


def test_each_step_feeds_the_last_committed_token():
    bench = Bench()
    bench.submit(tokens=LONG)
    bench.step()
    assert bench.spans == [Span(0, 0, list(LONG), 1)]
    bench.step()
    assert bench.spans == [Span(0, 2, TEXT[2:3], 1)]


def test_a_prompt_longer_than_a_batch_is_read_in_several_steps():
    bench = Bench(n_batch=8)
    bench.submit(tokens=[4] * 19)
    assert [bench.step() for _ in range(2)] == [[Started(sequence="s", n_cached=0)], []]
    assert bench.spans == [Span(0, 8, [4] * 8, 0)]
    (step,) = bench.step()
    assert bench.spans == [Span(0, 16, [4] * 3, 1)]
    assert step.start == 19


# Drafts


def drafting(*, depth=4, max_tokens=None, prompt=LONG, policy="fixed", sources=(), **limits):
    """A bench whose only sequence has its first token."""
    bench = Bench(depth, policy, **limits)
    bench.scheduler.connect(sources)
    bench.submit(tokens=prompt, max_tokens=max_tokens)
    bench.step()
    return bench


def post(bench, tokens, base=3, sequence="s", source="a", *, parents=None):
    draft = PostDraft(
        sequence=sequence, source=source, base=base, tokens=tokens, parents=parents, received_at=NOW
    )
    bench.scheduler.post_draft(draft)


def test_a_draft_is_decoded_behind_the_last_committed_token():
    bench = drafting()
    post(bench, TEXT[3:6])
    bench.step()
    assert bench.spans == [Span(0, 2, TEXT[2:6], 4)]


def test_a_right_draft_is_accepted_with_a_bonus_token():
    bench = drafting()
    post(bench, TEXT[3:6])
    assert bench.step() == [
        Committed(sequence="s", start=3, tokens=TEXT[3:7], n_accepted=3, sources=["a"] * 3)
    ]


def test_a_wrong_draft_is_cut_off_where_it_is_wrong():
    bench = drafting()
    wrong = (TEXT[4] + 1) % N_VOCAB
    post(bench, [TEXT[3], wrong, 8])
    (step,) = bench.step()
    assert step == Committed(
        sequence="s", start=3, tokens=TEXT[3:5], n_accepted=1, rejected=[wrong, 8], sources=["a"] * 3
    )
    assert bench.scheduler.plan(NOW).edits == [(0, 4)]


def test_after_an_accepted_draft_nothing_is_trimmed():
    bench = drafting()
    post(bench, TEXT[3:6])
    bench.step()
    assert bench.scheduler.plan(NOW).edits == []


def test_the_rest_of_a_deep_draft_is_verified_in_the_next_step():
    bench = drafting(depth=2)
    post(bench, TEXT[3:9])
    assert [step.tokens for _ in range(2) for step in bench.step()] == [TEXT[3:6], TEXT[6:9]]


def test_no_draft_token_is_decoded_that_could_not_be_committed():
    bench = drafting(max_tokens=4, depth=9)
    post(bench, TEXT[3:12])
    events = bench.step()
    assert bench.spans == [Span(0, 2, TEXT[2:5], 3)]
    assert events[-1] == Finished(sequence="s", reason="length")


def test_nothing_follows_an_end_token_within_a_draft():
    text, _ = plain_run(submit(tokens=[0, 1]), 100)
    bench = Bench(depth=9, n_batch=100)
    bench.submit(tokens=text[:-3])
    bench.step()
    post(bench, [*text[-2:], 5, 6], base=len(text) - 2)
    committed, finished = bench.step()
    assert committed.tokens == text[-2:]
    assert committed.rejected == [5, 6]
    assert finished.reason == "stop"


def test_drafts_share_what_the_batch_has_left():
    bench = Bench(depth=9, n_batch=6)
    bench.submit("s", LONG)
    bench.submit("t", LONG)
    bench.step()
    post(bench, TEXT[3:9], sequence="s")
    post(bench, TEXT[3:9], sequence="t")
    bench.step()
    assert [len(span.tokens) for span in bench.spans] == [5, 1]


def test_drafts_go_no_further_than_free_cells():
    bench = Bench(depth=9, n_ctx=60, n_ctx_sequence=60, n_batch=60)
    bench.submit("s", TEXT[:30])
    bench.submit("t", [4] * 25)
    bench.step()  # 55 cells are taken, two more are needed
    post(bench, TEXT[31:40], base=31)
    bench.step()
    assert [len(span.tokens) for span in bench.spans] == [4, 1]


def test_a_draft_may_arrive_before_its_sequence_has_a_slot():
    bench = Bench(n_slots=1, n_batch=8)
    bench.submit("first", [4], max_tokens=1)
    bench.submit("s", LONG)
    bench.step()
    post(bench, TEXT[2:6], base=2)
    assert text_of(bench.step()) == TEXT[2:3]  # where it starts, the prompt comes first
    assert text_of(bench.step()) == TEXT[3:7]


def test_stale_drafts_are_counted_in_the_next_step():
    bench = drafting()
    post(bench, [1], base=50)
    post(bench, [1], base=50, source="b")
    assert of(DraftsDropped, bench.step()) == [
        DraftsDropped(source="a", n_stale=1),
        DraftsDropped(source="b", n_stale=1),
    ]
    assert of(DraftsDropped, bench.step()) == []


def test_a_model_that_cannot_trim_verifies_no_drafts():
    bench = drafting(can_trim=False)
    post(bench, TEXT[3:6])
    bench.step()
    assert bench.spans == [Span(0, 2, TEXT[2:3], 1)]


def test_after_a_mismatch_the_branch_that_begins_with_the_recovered_token_is_verified():
    bench = drafting()
    wrong = (TEXT[3] + 1) % N_VOCAB
    post(bench, [wrong, 8, *TEXT[3:6]], parents=[-1, 0, -1, 2, 3])
    (step,) = bench.step()
    assert (step.tokens, step.rejected) == (TEXT[3:4], [wrong, 8])
    (step,) = bench.step()
    assert (step.tokens, step.n_accepted) == (TEXT[4:7], 2)


def test_each_token_of_a_step_has_its_own_source():
    bench = drafting()
    post(bench, TEXT[3:4], source="a")
    post(bench, TEXT[3:6], source="b")
    (step,) = bench.step()
    assert step.n_accepted == 3
    assert step.sources[1:] == ["b", "b"]


# Waiting for drafts, and what backs are told


def test_a_plan_that_waits_has_nothing_to_decode_and_changes_nothing():
    bench = drafting(policy="sync", sources=["a"])
    for _ in range(3):
        plan = bench.scheduler.plan(NOW)
        assert plan.wait > 0
        assert (plan.entries, plan.spans, plan.edits, plan.n_tokens) == ([], [], [], 0)
        bench.scheduler.check_integrity()
    post(bench, TEXT[3:7])
    assert text_of(bench.step()) == TEXT[3:8]


def test_a_plan_that_waits_tells_who_was_started():
    bench = drafting(policy="sync", sources=["a"])
    bench.submit("t", OTHER, max_tokens=3)
    plan = bench.scheduler.plan(NOW)
    assert names(plan.news) == ["t"]
    assert plan.wait == 0, "its prompt is read instead"


def test_a_wait_ends_with_patience():
    bench = drafting(policy="sync", sources=["a"])
    assert bench.scheduler.plan(NOW).wait > 0
    assert bench.scheduler.plan(NOW + 2 * SYNC_PATIENCE_S).wait == 0


def test_caches_are_cut_back_after_a_wait_too():
    bench = drafting(policy="sync", sources=["a"])
    post(bench, [(TEXT[3] + 1) % N_VOCAB, 8, 8, 8])
    bench.step()
    assert bench.scheduler.plan(NOW).edits == []
    post(bench, TEXT[4:8], base=4)
    assert bench.scheduler.plan(NOW).edits == [(0, 3)]


def test_nothing_is_waited_for_that_could_not_be_committed():
    bench = drafting(policy="sync", sources=["a"], max_tokens=2)
    assert bench.scheduler.plan(NOW).wait == 0


def test_after_a_full_cache_no_drafts_are_waited_for():
    bench = drafting(policy="sync", sources=["a"])
    post(bench, TEXT[3:7])
    planned(bench)
    bench.scheduler.shed()
    bench.step()
    assert [len(span.tokens) for span in bench.spans] == [1]


def test_after_a_full_cache_the_next_step_does_not_wait():
    bench = drafting(policy="sync", sources=["a"])
    bench.scheduler.shed()
    assert bench.scheduler.plan(NOW).wait == 0


def test_a_model_that_cannot_trim_waits_for_no_drafts():
    bench = drafting(policy="sync", sources=["a"], can_trim=False)
    assert bench.scheduler.plan(NOW).wait == 0


def test_steps_with_prompts_are_not_predicted():
    bench = drafting()
    assert bench.scheduler.plan(NOW).expected == 1
    bench.submit("t", OTHER)
    assert bench.scheduler.plan(NOW).expected is None


def test_backs_are_told_to_rest_when_speculation_is_turned_off():
    bench = drafting()
    bench.scheduler.set_policy("off", 0)
    post(bench, TEXT[3:6])
    events = bench.step()
    assert text_of(events) == TEXT[3:4]
    assert of(Tuned, events) == [Tuned(n_ahead=0, min_confidence=0.0)]
    assert of(Tuned, bench.step()) == []


def test_a_new_policy_is_followed_in_the_next_step():
    bench = drafting(policy="off")
    bench.scheduler.set_policy("fixed", 2)
    post(bench, TEXT[3:9])
    bench.step()
    assert [len(span.tokens) for span in bench.spans] == [3]


def test_what_was_done_is_reported():
    bench = drafting()
    post(bench, [TEXT[3], (TEXT[4] + 1) % N_VOCAB])
    bench.scheduler.waited(0.25)
    bench.step()
    report = bench.scheduler.describe()
    assert (report["n_steps"], report["n_committed"], report["depths"]) == (2, 3, {"0": 1, "2": 1})
    assert (report["n_draft_tokens"], report["n_accepted_tokens"], report["n_recovered"]) == (2, 1, 1)
    assert (report["step_seconds"], report["wait_seconds"]) == (0.02, 0.25)
    assert report["step_ms"].keys() == {"2", "3"}


# Many sequences


def test_sequences_run_together():
    bench = Bench()
    bench.submit("s", LONG)
    bench.submit("t", LONG)
    bench.step()
    assert [span.slot for span in bench.spans] == [0, 1]


def test_those_that_find_no_slot_start_in_the_order_they_came():
    bench = Bench()
    for name in "abcde":
        bench.submit(name, LONG, max_tokens=3)
    events = bench.drain()
    assert names(events) == list("abcde")
    assert all(text_of(events, name) == TEXT[2:5] for name in "abcde")


def test_a_prompt_is_read_in_small_pieces_while_others_generate():
    bench = Bench(n_prompt_chunk=3)
    bench.submit("s", LONG)
    bench.step()
    bench.submit("t", [4] * 9)
    bench.step()
    assert [len(span.tokens) for span in bench.spans] == [1, 4]


def test_two_prompts_share_a_batch():
    bench = Bench(n_batch=8)
    bench.submit("s", [4] * 6)
    bench.submit("t", [5] * 6)
    bench.step()
    assert [len(span.tokens) for span in bench.spans] == [6, 2]


def test_a_prompt_that_does_not_fit_beside_the_others_waits():
    bench = Bench(n_ctx=100)
    bench.submit("s", LONG, max_tokens=20)
    bench.submit("t", [4] * 97, max_tokens=2)
    assert names(bench.step()) == ["s"]
    assert names(bench.step()) == []
    assert names(bench.drain(), Finished) == ["s", "t"]


def test_when_cells_run_out_the_youngest_steps_back_and_goes_on_later():
    bench = Bench(n_ctx=99)
    bench.submit("s", LONG)
    bench.submit("t", LONG)
    events = bench.drain()
    assert text_of(events, "s") == text_of(events, "t") == TEXT[2:]
    assert names(events, Finished) == ["s", "t"]
    started = [(event.sequence, event.again) for event in events if isinstance(event, Started)]
    assert started == [("s", False), ("t", False), ("t", True)]


def test_a_sequence_that_stepped_back_runs_before_those_that_wait():
    bench = Bench(n_ctx=99)
    bench.submit("a", LONG)
    bench.submit("b", LONG)
    bench.submit("c", LONG, max_tokens=1)
    events = bench.drain()
    assert [(event.type, event.sequence) for event in events if not isinstance(event, Committed)] == [
        ("started", "a"),
        ("started", "b"),
        ("finished", "a"),
        ("started", "b"),
        ("started", "c"),
        ("finished", "c"),
        ("finished", "b"),
    ]


# Caches that outlive their sequences


def test_a_prompt_that_continues_an_earlier_text_finds_it_cached():
    bench = Bench()
    bench.complete("s", LONG, max_tokens=10)
    assert bench.complete("t", TEXT[:15], max_tokens=1) == 11


def test_the_last_token_of_a_prompt_is_decoded_even_if_it_is_cached():
    bench = Bench()
    bench.complete("s", LONG, max_tokens=10)
    assert bench.complete("t", TEXT[:8], max_tokens=1) == 7
    assert bench.target.steps[-1] == [1]


def test_rejected_drafts_are_not_taken_for_cached_text():
    bench = Bench()
    bench.submit("s", LONG, max_tokens=4)
    bench.step()
    wrong = (TEXT[3] + 1) % N_VOCAB
    post(bench, [wrong, 6])
    bench.drain()
    assert bench.complete("t", [*TEXT[:3], wrong, 6, 7], max_tokens=1) == 3


def test_a_text_goes_where_most_of_it_is_cached():
    bench = Bench()
    bench.submit("s", [1] * 10, max_tokens=1)
    bench.submit("t", [4] * 10, max_tokens=1)
    bench.drain()
    assert bench.complete("u", [4] * 12, max_tokens=1) == 10


def test_a_common_beginning_alone_overwrites_no_other_text():
    bench = Bench()
    bench.complete("s", [1, 4, *[5] * 10], max_tokens=1)
    assert bench.complete("t", [1, 4, *[6] * 10], max_tokens=1) == 2
    assert bench.complete("u", [1, 4, *[5] * 10, 7], max_tokens=1) == 12


def test_the_slot_used_longest_ago_is_taken_for_a_new_text():
    bench = Bench()
    bench.complete("s", [1] * 10, max_tokens=1)
    bench.complete("t", [4] * 10, max_tokens=1)
    bench.complete("u", [5] * 10, max_tokens=1)
    assert bench.complete("v", [4] * 10, max_tokens=1) == 9
    assert bench.complete("w", [1] * 10, max_tokens=1) == 0


def test_idle_caches_make_room_the_one_used_longest_ago_first():
    bench = Bench(n_slots=3, n_ctx=100)
    bench.complete("s", [1] * 40, max_tokens=1)
    bench.complete("t", [4] * 40, max_tokens=1)
    bench.complete("u", [5] * 40, max_tokens=1)
    assert bench.complete("v", [4] * 41, max_tokens=1) == 40
    assert bench.complete("w", [1] * 40, max_tokens=1) == 0


def test_a_state_that_cannot_be_cut_is_used_whole_or_not_at_all():
    bench = Bench(can_trim=False)
    bench.complete("s", LONG, max_tokens=10)
    assert bench.complete("t", TEXT[:8], max_tokens=1) == 0
    bench.complete("u", LONG, max_tokens=10)
    assert bench.complete("v", TEXT[:15], max_tokens=1) == 11


# Cancelling


def test_a_cancelled_sequence_frees_its_slot_at_once():
    bench = Bench(n_slots=1)
    bench.submit("s", LONG)
    bench.submit("t", LONG, max_tokens=1)
    bench.step()
    bench.scheduler.cancel("s")
    assert names(bench.step()) == ["t"]
    assert bench.scheduler.idle


def test_a_waiting_sequence_can_be_cancelled():
    bench = Bench(n_slots=1)
    bench.submit("s", LONG, max_tokens=3)
    bench.submit("t", LONG)
    bench.scheduler.cancel("t")
    assert names(bench.drain(), Finished) == ["s"]


def test_cancelling_what_has_ended_does_nothing():
    bench = drafting()
    bench.scheduler.cancel("unknown")
    bench.scheduler.check_integrity()
    assert text_of(bench.step()) == TEXT[3:4]


def test_what_a_cancelled_sequence_has_cached_is_reused():
    bench = Bench(n_batch=8)
    bench.submit("s", [4] * 19)
    bench.step()
    bench.scheduler.cancel("s")
    assert bench.complete("t", [4] * 12, max_tokens=1) == 8


# Shedding: the model had no room although the count said so


def planned(bench):
    """The next plan, of which only the edits were carried out."""
    plan = bench.scheduler.plan(NOW)
    carry_out(plan.edits, bench.target)
    return plan


def test_after_a_full_cache_the_next_step_takes_one_token_of_each():
    bench = drafting()
    bench.submit("t", [4] * 9)
    post(bench, TEXT[3:6])
    assert len(planned(bench).spans) == 2
    assert bench.scheduler.shed() == []
    bench.step()
    assert [len(span.tokens) for span in bench.spans] == [1, 1]
    bench.step()
    assert sum(len(span.tokens) for span in bench.spans) > 2


def test_after_a_full_cache_nobody_new_starts():
    bench = drafting()
    planned(bench)
    bench.scheduler.shed()
    bench.submit("t", LONG)
    assert names(bench.step()) == []
    assert names(bench.step()) == ["t"]


def test_idle_caches_are_given_up_before_a_place():
    bench = Bench()
    bench.complete("s", [4] * 9, max_tokens=1)
    bench.submit("t", LONG)
    planned(bench)
    bench.scheduler.shed()
    bench.step()
    assert bench.target.slots[0] == []
    assert [span.slot for span in bench.spans] == [1]


def test_the_youngest_gives_up_its_place_before_the_oldest_ends():
    bench = Bench()
    bench.submit("s", LONG)
    bench.submit("t", LONG)
    bench.step()
    for _ in range(3):  # take less, then the place, then what is cached there
        planned(bench)
        assert bench.scheduler.shed() == []
    bench.step()
    assert bench.target.slots[1] == []
    assert [span.slot for span in bench.spans] == [0]
    assert text_of(bench.drain(), "t") == TEXT[3:]


def test_a_single_token_that_finds_no_room_ends_the_text():
    bench = drafting()
    for _ in range(2):
        planned(bench)
        events = bench.scheduler.shed()
    assert events == [Finished(sequence="s", reason="length")]
    assert bench.scheduler.idle


def test_a_frugal_scheduler_whose_sequences_are_cancelled_goes_on():
    bench = drafting()
    bench.submit("t", LONG, max_tokens=3)
    planned(bench)
    bench.scheduler.shed()
    bench.scheduler.cancel("s")
    assert text_of(bench.drain(), "t") == TEXT[2:5]


# Integrity


def test_a_cache_with_another_text_is_noticed():
    bench = drafting()
    bench.scheduler._slots._slots[0].cache.tokens[0] += 1
    with pytest.raises(AssertionError, match="another text"):
        bench.scheduler.check_integrity()


def test_a_sequence_in_two_places_is_noticed():
    bench = drafting()
    bench.scheduler._slots._waiting.append(bench.scheduler._slots._slots[0].sequence)
    with pytest.raises(AssertionError, match="two places"):
        bench.scheduler.check_integrity()


def test_a_prompt_is_read_once_for_all_who_ask_at_the_same_time():
    prompt = [*LONG, *range(4, 24), *range(4, 24)]
    bench = Bench(n_slots=4, n_ctx=400)
    for name in "abcd":
        bench.submit(name, tokens=prompt, max_tokens=2)
    started = of(Started, bench.drain())
    assert [each.n_cached for each in started] == [0, *[len(prompt) - 1] * 3]
    assert sum(sum(step) for step in bench.target.steps) == len(prompt) + 3 + 4


class Choking:
    """A sampler that chooses some tokens and then fails."""

    def __init__(self, error, n=2):
        self.error, self.n = error, n

    def choose(self, _logits, position):
        if position >= len(LONG) + self.n:
            raise self.error
        return TEXT[position]

    def accept(self, token):
        pass


@pytest.mark.parametrize(
    ("error", "param"), [(GrammarTooSlowError("too many ways", "grammar"), "grammar"), (ValueError(), None)]
)
def test_a_sequence_whose_tokens_cannot_be_chosen_fails_alone(error, param):
    bench = Bench()
    whole = bench.scheduler._make_sampler
    bench.scheduler._make_sampler = lambda request: (
        Choking(error) if request.sequence == "s" else whole(request)
    )
    bench.submit(tokens=LONG)
    bench.submit("t", tokens=LONG, max_tokens=6)
    bench.step()
    post(bench, TEXT[3:7])
    events = bench.drain()
    assert [(failed.sequence, failed.param) for failed in of(Failed, events)] == [("s", param)]
    assert names(events, Finished) == ["t"]
    assert bench.complete("u", tokens=TEXT[:4], max_tokens=1) == 3, "what was cached stays right"


def test_a_sequence_in_the_queue_costs_no_sampler():
    made = []
    bench = Bench(n_slots=1)
    whole = bench.scheduler._make_sampler
    bench.scheduler._make_sampler = lambda request: made.append(request.sequence) or whole(request)
    bench.submit(tokens=LONG)
    bench.submit("t", tokens=LONG)
    bench.step()
    assert made == ["s"]


class SchedulerMachine(RuleBasedStateMachine):
    """Anything may happen between steps; in the end every text is the plain one."""

    rngs = st.integers(0, 1 << 20).map(random.Random)

    def __init__(self):
        super().__init__()
        self.bench = Bench(depth=5, n_slots=3, n_ctx=45, n_ctx_sequence=40, n_batch=9, n_prompt_chunk=3)
        self.scheduler = self.bench.scheduler
        self.truth = {}
        self.reasons = {}
        self.texts = {}
        self.running = []

    @rule(
        rng=rngs,
        n_prompt=st.integers(1, 39),
        temperature=st.sampled_from([0, 1]),
        penalty=st.sampled_from([1, 1.5]),
    )
    def submit(self, rng, n_prompt, temperature, penalty):
        name = f"s{len(self.texts)}"
        sampling = SamplingParameters(
            seed=rng.randrange(99), temperature=temperature, repeat_penalty=penalty, repeat_last_n=6
        )
        stem = [4, 9, 2, 9, 4, 1, 1, 8, 22, 5, 6, 0] * 4
        tokens = [*stem[: n_prompt - 1], rng.randrange(N_VOCAB)]
        request = submit(name, tokens, sampling, rng.choice([None, 1, 7]))
        self.scheduler.submit(request, NOW)
        self.truth[name], self.reasons[name] = plain_run(request, self.bench.limits.n_ctx_sequence)
        self.texts[name] = tokens
        self.running.append(name)

    @precondition(lambda self: self.running)
    @rule(rng=rngs)
    def cancel(self, rng):
        name = rng.choice(self.running)
        self.scheduler.cancel(name)
        self.running.remove(name)

    @precondition(lambda self: self.running)
    @rule(rng=rngs, n_back=st.integers(-3, 5), n=st.integers(1, 9), source=st.sampled_from("ab"))
    def post_right_draft(self, rng, n_back, n, source):
        """Also stale, partly stale and ahead of what is committed."""
        name = rng.choice(self.running)
        base = max(0, len(self.texts[name]) - n_back)
        tokens = [*self.truth[name], *END_TOKENS, 1][base : base + n]
        self.scheduler.post_draft(PostDraft(sequence=name, source=source, base=base, tokens=tokens))

    @precondition(lambda self: self.running)
    @rule(rng=rngs, n_right=st.integers(0, 3), source=st.sampled_from("ab"))
    def post_wrong_draft(self, rng, n_right, source):
        name = rng.choice(self.running)
        base = len(self.texts[name])
        tokens = [*self.truth[name][base : base + n_right], rng.randrange(N_VOCAB), rng.randrange(N_VOCAB)]
        self.scheduler.post_draft(PostDraft(sequence=name, source=source, base=base, tokens=tokens))

    @precondition(lambda self: self.running)
    @rule(rng=rngs, n=st.integers(1, 12), source=st.sampled_from("abc"))
    def post_tree(self, rng, n, source):
        """Any tree; some of its tokens are right wherever they hang."""
        name = rng.choice(self.running)
        base = max(0, len(self.texts[name]) - rng.randint(0, 2))
        ahead = [*self.truth[name], *END_TOKENS][base:]
        draft = PostDraft(
            sequence=name,
            source=source,
            base=base,
            tokens=[rng.choice([rng.choice(ahead[:4]), rng.randrange(N_VOCAB)]) for _ in range(n)],
            parents=[rng.randint(max(-1, i - 3), i - 1) for i in range(n)],
            confidences=[rng.random() for _ in range(n)],
            received_at=self.bench.now,
        )
        self.scheduler.post_draft(draft)

    @rule(policy=st.sampled_from(["adaptive", "fixed", "sync", "off"]), depth=st.integers(0, 32))
    def set_policy(self, policy, depth):
        self.scheduler.set_policy(policy, depth)

    @rule(sources=st.sets(st.sampled_from("abc")))
    def connect(self, sources):
        self.scheduler.connect(sorted(sources))

    @rule(n=st.integers(1, 4))
    def step(self, n):
        for _ in range(n):
            if not self.scheduler.idle:
                self.take(self.bench.step())

    @precondition(lambda self: self.running)
    @rule()
    def shed(self):
        plan = planned(self.bench)
        self.take(plan.news)
        if plan.wait > 0:
            return
        if sum(len(span.tokens) for span in plan.spans) > 1:
            self.take(self.scheduler.shed())
        else:  # a single token always finds room
            self.take(self.scheduler.commit(plan, self.bench.target.decode(plan.spans), NOW, 0.01))

    @invariant()
    def the_books_are_right(self):
        self.scheduler.check_integrity()

    @invariant()
    def idle_means_that_nobody_runs(self):
        assert self.scheduler.idle == (not self.running)

    def take(self, events):
        for event in events:
            match event:
                case Committed():
                    assert event.sequence in self.running
                    assert event.start == len(self.texts[event.sequence])
                    self.texts[event.sequence] += event.tokens
                case Finished():
                    assert event.reason == self.reasons[event.sequence]
                    assert self.texts[event.sequence] == self.truth[event.sequence]
                    self.running.remove(event.sequence)

    def teardown(self):
        self.take(self.bench.drain())
        assert not self.running
        for name, text in self.texts.items():
            assert text == self.truth[name][: len(text)]


TestSchedulerMachine = SchedulerMachine.TestCase


def test_a_step_counts_what_the_model_adds_to_shorter_spans():
    bench = Bench(n_slots=2, n_ctx=200, n_ctx_slot=100)
    bench.submit("a", tokens=LONG)
    bench.submit("b", tokens=LONG)
    bench.step()
    bench.scheduler.post_draft(PostDraft(sequence="a", source="x", base=3, tokens=TEXT[3:6]))
    plan = bench.scheduler.plan(NOW)
    assert [len(span.tokens) for span in plan.spans] == [4, 1]
    assert plan.n_tokens == 8
