"""Side branches: drafts that begin with a runner-up, in case the target chooses it.

At temperature 1 the toy model has a runner-up probable enough for a branch at almost every position.
"""

import functools

import pytest

from shared.errors import KvCacheFullError
from shared.protocol import MAX_DRAFT_TOKENS, MAX_PARTS, BranchPart
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import RankedToken, Sampler
from tests.shared.drafting.drafting import DrafterHarness
from tests.toy_model import END_TOKENS, GREEDY, N_VOCAB, FakeTarget, extend_hash, toy_sampler

WARM = SamplingParameters(seed=6, temperature=1, top_k=0, top_p=1, min_p=0, ignore_eos=True)
PROMPT = [4, 9]


def branching(n_branches=3, n_ahead=6, sampling=WARM, **options):
    """A harness with one sequence, whose drafter has become idle."""
    harness = DrafterHarness(n_branches=n_branches, n_ahead=n_ahead, **options)
    harness.open(tokens=PROMPT, sampling=sampling)
    harness.drain()
    return harness


def state(harness):
    return harness.drafter.sequences["s"]


def branches(harness):
    """(offset in the main branch, tokens) of each branch, in order."""
    sequence = state(harness)
    return sorted((each.start - sequence.main.start, each.tokens) for each in sequence.branches.values())


class DoubtfulSampler(Sampler):
    """The product of its confidences is less than the smallest float after a few tokens."""

    def rank(self, logits, position, n):
        return [RankedToken(each.token, 1e-60) for each in super().rank(logits, position, n)]


def test_a_draft_without_any_confidence_goes_on():
    def make_sampler(parameters, history, _=None, /):
        return DoubtfulSampler(parameters, None, history)

    harness = DrafterHarness(n_branches=1, n_ahead=8, make_sampler=make_sampler)
    harness.open(tokens=PROMPT)
    for _ in range(20):
        harness.step()
    assert len(state(harness).main.ranked) == 8
    assert harness.drafter.idle


def chosen(text, sampling=WARM, n=1):
    """The next `n` tokens that the draft model would choose after `text`."""
    text = list(text)
    for _ in range(n):
        logits = DrafterHarness().model._row(functools.reduce(extend_hash, text, 0))
        text.append(toy_sampler(sampling, text).choose(logits, len(text)))
    return text[-n:]


def test_branches_begin_at_the_most_probable_runners_up():
    harness = branching(n_branches=2, slope=1)
    worth, reach = {}, 1.0
    # n_ahead leaves no room after the last one
    for place, (first, *runners_up) in enumerate(state(harness).main.ranked[:-1]):
        worth |= {(place, choice.token): reach * choice.confidence for choice in runners_up}
        reach *= first.confidence
    best = sorted(worth, key=lambda entry: -worth[entry])[:2]
    assert [(place, tokens[0]) for place, tokens in branches(harness)] == sorted(best)


def test_two_branches_may_leave_the_main_path_at_the_same_position():
    harness = branching(n_branches=8)
    places = [place for place, _ in branches(harness)]
    assert len(places) > len(set(places))


def test_the_length_of_a_branch_is_limited():
    harness = branching(n_branch_tokens=3, n_ahead=16)
    assert max(len(tokens) for _, tokens in branches(harness)) == 3


def test_a_branch_stays_within_n_ahead():
    harness = branching(n_ahead=4)
    assert branches(harness)
    assert all(place + len(tokens) <= 4 for place, tokens in branches(harness))


def test_no_branch_begins_with_an_end_token_or_continues_after_it():
    for seed in range(20):
        sampling = WARM.model_copy(update={"seed": seed, "ignore_eos": False})
        harness = branching(8, sampling=sampling, n_ahead=12)
        assert all(END_TOKENS.isdisjoint([tokens[0], *tokens[:-1]]) for _, tokens in branches(harness))


def test_branches_do_not_exceed_the_window():
    longest = 0
    for seed in range(20):
        harness = DrafterHarness(n_branches=3, n_ahead=16, n_window=6)
        harness.tune(16, min_confidence=0.3)
        harness.open(tokens=PROMPT, sampling=WARM.model_copy(update={"seed": seed, "temperature": 0.3}))
        harness.drain()
        assert max(map(len, harness.model.slots)) <= 6
        longest = max([longest, *(len(each.cache) for each in state(harness).branches.values())])
    assert longest == 6


def test_an_improbable_runner_up_gets_no_branch():
    cold = WARM.model_copy(update={"temperature": 0.02})
    assert branches(branching(sampling=cold)) == []


def test_min_confidence_of_the_lead_applies_to_branches():
    assert branches(branching())
    harness = DrafterHarness(n_branches=3, n_ahead=6)
    harness.tune(6, min_confidence=1.0)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    assert branches(harness) == []


# When they are decoded


def experienced(slope, **options):
    """A harness about to decode a prompt. Its drafter has learned the cost of a further token."""
    harness = branching(slope=slope, **options)
    harness.close()
    harness.open(tokens=PROMPT, sampling=WARM.model_copy(update={"seed": 1}))
    harness.model.steps.clear()
    return harness


def test_where_a_further_token_costs_as_much_as_the_first_the_likeliest_is_decoded_alone():
    harness = experienced(slope=1)
    harness.drain()
    assert branches(harness)
    assert {len(step) for step in harness.model.steps} == {1}


def test_where_further_tokens_cost_nothing_all_branches_are_decoded_beside_the_main_path():
    harness = experienced(slope=0, n_branches=4)
    harness.step()
    harness.step()
    assert harness.model.steps == [[1], [1] * 5]


def test_a_step_makes_the_most_of_its_time():
    """No other number of the likeliest tokens has a larger sum of probabilities per second of its decode."""
    harness = experienced(slope=0.3, n_branches=8, n_ahead=8)
    harness.step()
    while state(harness).main.confidence > 0.05:  # what is less likely than 0.05 * 0.3 is no gain
        likely = [value for value, _ in state(harness).growing_branches(0.0)]
        values = sorted([state(harness).main.confidence, *likely], reverse=True)
        rates = [sum(values[:n]) / (1 + 0.3 * (n - 1)) for n in range(1, len(values) + 1)]
        harness.step()
        assert rates[len(harness.model.steps[-1]) - 1] == pytest.approx(max(rates))
    assert len({len(step) for step in harness.model.steps[1:]}) > 1


def test_the_short_draft_of_another_sequence_comes_before_a_long_one():
    harness = branching(n_ahead=4, slope=1)
    harness.tune(12)
    harness.open("t", [1], WARM)
    harness.step()
    assert len(harness.drafter.sequences["t"].main.ranked) == 1
    assert harness.model.steps[-1] == [1]


def test_branches_that_exceed_the_batch_size_take_turns():
    harness = branching(n_branches=3, n_batch=2)
    assert len(branches(harness)) == 3


def first_tokens(harness):
    """(position, token) of the first branches that are begun."""
    while not state(harness).branches:
        harness.step()
    return list(state(harness).branches)


def test_of_side_branches_a_back_drafts_those_of_its_part_first():
    for index in range(2):
        part = BranchPart(index=index, of=2)
        harness = DrafterHarness(n_branches=1, n_ahead=6)
        harness.open(tokens=PROMPT, sampling=WARM, part=part)
        assert all(part.has(*first) for first in first_tokens(harness))


def test_another_part_holds_from_the_next_tokens_of_the_text_on():
    harness = DrafterHarness(n_branches=1, n_ahead=6)
    harness.open(tokens=PROMPT, sampling=WARM, part=BranchPart(index=0, of=2))
    (before,) = first_tokens(harness)
    harness.extend(2, [9], part=BranchPart(index=1, of=2))
    (after,) = first_tokens(harness)
    assert [sum(each) % 2 for each in (before, after)] == [0, 1]


def test_what_is_in_the_parts_of_others_is_drafted_last():
    alone, divided = (DrafterHarness(n_branches=8, n_ahead=6) for _ in range(2))
    alone.open(tokens=PROMPT, sampling=WARM)
    divided.open(tokens=PROMPT, sampling=WARM, part=BranchPart(index=1, of=MAX_PARTS))
    alone.drain()
    divided.drain()
    assert state(divided).main.tokens == state(alone).main.tokens
    assert branches(divided), "nothing better is to be done"


# Committed tokens


def test_a_branch_becomes_the_draft_when_its_first_token_is_committed():
    harness = branching(n_ahead=8)
    place, tokens = branches(harness)[0]
    main = state(harness).main.tokens
    harness.extend(2, [*main[:place], tokens[0]])
    assert harness.draft().tokens == tokens[1:]
    assert state(harness).n_pending(state(harness).main) == 1, "all but its last token are decoded already"
    harness.step()
    assert state(harness).main.tokens[: len(tokens) - 1] == tokens[1:]


def test_the_wrong_tokens_of_a_branch_that_became_the_main_path_are_removed():
    harness = branching(n_ahead=8)
    place, tokens = branches(harness)[0]
    n_steps = len(harness.model.steps)
    wrong = next(token for token in range(N_VOCAB) if token not in {*END_TOKENS, *tokens})
    text = [*PROMPT, *state(harness).main.tokens[:place], tokens[0], wrong]
    harness.extend(2, text[2:])
    assert harness.draft() is None
    harness.step()
    assert harness.model.steps[n_steps:] == [[1]]
    harness.drain()
    assert state(harness).main.tokens == chosen(text, WARM, 8)


def test_a_branch_that_begins_elsewhere_does_not_become_the_draft():
    harness = branching(n_branches=8)
    main = state(harness).main
    first = {tokens[0] for place, tokens in branches(harness) if place == 0} | {main.tokens[0]}
    token = next(tokens[0] for place, tokens in branches(harness) if place and tokens[0] not in first)
    harness.extend(2, [token])
    assert harness.draft() is None
    harness.drafter.check_integrity()


def test_branches_that_begin_before_the_committed_end_are_dropped():
    harness = branching()
    before = branches(harness)
    n = before[0][0] + 1
    harness.extend(2, state(harness).main.tokens[:n])
    assert branches(harness) == [(place - n, tokens) for place, tokens in before if place >= n]
    assert 0 < len(branches(harness)) < 3
    harness.drafter.check_integrity()


def test_a_branch_that_begins_at_the_committed_end_is_kept():
    harness = branching()
    place, tokens = next(pair for pair in branches(harness) if pair[0] > 0)
    harness.extend(2, state(harness).main.tokens[:place])
    assert (0, tokens) in branches(harness)


# Messages


def by_place(paths):
    return sorted(paths, key=lambda each: (each.start, -each.ranked[0][0].confidence))


def in_order_of_sending(harness):
    sequence = state(harness)
    return [(each.start - sequence.main.start, each.tokens) for each in by_place(sequence.branches.values())]


def test_a_draft_lists_the_main_path_first_and_the_parents_of_each_branch():
    harness = branching()
    draft = harness.draft()
    main = state(harness).main.tokens
    n = len(main)
    assert draft.tokens[:n] == main
    assert draft.parents[:n] == list(range(-1, n - 1))
    at = n
    for place, tokens in in_order_of_sending(harness):
        assert draft.tokens[at : at + len(tokens)] == tokens
        assert draft.parents[at : at + len(tokens)] == [place - 1, *range(at, at + len(tokens) - 1)]
        at += len(tokens)
    assert at == len(draft.tokens) == len(draft.confidences)


def test_a_branch_of_one_token_is_not_sent():
    harness = branching()
    for branch in state(harness).branches.values():
        del branch.ranked[1:]
    draft = harness.draft()
    assert draft.tokens == state(harness).main.tokens
    assert draft.parents is None


def test_a_draft_has_at_most_as_many_tokens_as_the_protocol_allows():
    harness = DrafterHarness(n_branches=3, n_ahead=MAX_DRAFT_TOKENS - 4, n_window=200)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    draft = harness.draft()
    assert len(draft.tokens) <= MAX_DRAFT_TOKENS
    assert draft.tokens[: MAX_DRAFT_TOKENS - 4] == state(harness).main.tokens


# Windows and the KV cache


def sliding():
    """A harness with branches, whose main branch is about to fill its window."""
    harness = DrafterHarness(n_branches=3, n_ahead=16, n_window=10)
    harness.tune(6)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    assert branches(harness)
    harness.tune(16)
    return harness


def test_a_branch_begins_only_where_the_new_window_is_decoded():
    harness = sliding()
    while not harness.drafter.idle:
        harness.step()
        harness.drafter.check_integrity()
        start, n = state(harness).window_start, len(state(harness).main.cache)
        assert all(start < each.start <= start + n for each in state(harness).branches.values())


def test_a_branch_shares_the_cells_of_its_prefix():
    harness = branching(n_branches=1, n_ahead=4)
    (branch,) = state(harness).branches.values()
    n_own = len(branch.tokens) - 1  # the last one is not decoded
    assert harness.model.n_cells_used == len(state(harness).main.cache) + n_own


class FullTarget(FakeTarget):
    """A target that raises KvCacheFullError while it is `full`."""

    full = False

    def decode(self, spans):
        if self.full:
            raise KvCacheFullError("no room")
        return super().decode(spans)


def full_harness(**options):
    harness = branching(target=FullTarget, **options)
    harness.model.full = True
    return harness


def test_branches_are_dropped_first_when_the_kv_cache_is_full():
    harness = full_harness()
    harness.extend(2, state(harness).main.tokens[:1])
    assert harness.step() == []
    assert branches(harness) == []
    harness.model.full = False
    harness.drain()
    assert len(state(harness).main.tokens) == 6
    assert branches(harness) == [], "the cache had no room for branches"


def test_idle_caches_and_then_sequences_are_dropped_when_the_kv_cache_stays_full(caplog):
    harness = branching(target=FullTarget, n_branches=0)
    harness.open("t", [1, 2, 3])
    harness.drain()
    harness.close("t")
    harness.extend(2, [9])
    harness.model.full = True
    for n_left in (1, 0):
        harness.step()
        assert len(harness.drafter.sequences) == n_left
        harness.drafter.check_integrity()
    assert harness.drafter.idle
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 1


def test_branches_are_drafted_again_after_a_sequence_has_ended():
    harness = full_harness()
    harness.extend(2, state(harness).main.tokens[:1])
    harness.step()
    harness.model.full = False
    harness.close()
    harness.open("t", PROMPT, WARM)
    harness.drain()
    assert harness.drafter.sequences["t"].branches


# Confidence


def test_a_draft_ends_when_its_confidence_falls_below_the_minimum():
    harness = DrafterHarness(n_ahead=12)
    harness.tune(12, min_confidence=0.3)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    main = state(harness).main
    assert 1 <= len(main.ranked) < 12
    assert main.confidence < 0.3 <= main.confidence / main.drafted[-1].confidence


def test_at_least_one_token_is_drafted_whatever_its_confidence():
    harness = DrafterHarness()
    harness.tune(4, min_confidence=1.0)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    assert len(state(harness).main.ranked) == 1


def test_accepted_tokens_no_longer_lower_the_confidence_of_a_draft():
    harness = DrafterHarness(n_ahead=12)
    harness.tune(12, min_confidence=0.1)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    main = list(state(harness).main.tokens)
    harness.extend(2, main[:-1])
    harness.drain()
    assert len(state(harness).main.tokens) > 1


def test_n_ahead_of_the_lead_is_capped_by_the_backs_own():
    harness = DrafterHarness(n_ahead=4)
    harness.tune(9)
    harness.open(sampling=GREEDY)
    assert len(harness.last_draft().tokens) == 4


def test_tuning_by_a_lead_ends_with_the_connection():
    harness = DrafterHarness(n_ahead=4)
    harness.tune(0, min_confidence=1.0)
    harness.drafter.reset()
    harness.open(sampling=GREEDY)
    assert len(harness.last_draft().tokens) == 4


def test_the_lead_can_pause_and_resume_drafting():
    harness = DrafterHarness(n_ahead=4)
    harness.tune(0)
    harness.open(sampling=GREEDY)
    assert harness.drafter.idle
    harness.tune(2)
    assert len(harness.last_draft().tokens) == 2
