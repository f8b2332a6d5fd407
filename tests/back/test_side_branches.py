"""Side branches: what follows a runner-up is ready when the lead comes to it.

At temperature 1 the toy model has a runner-up worth a branch almost everywhere.
"""

import functools

import pytest

from shared.errors import KvCacheFullError
from shared.protocol import MAX_DRAFT_TOKENS
from shared.sampling.parameters import SamplingParameters
from tests.back.drafting import DrafterHarness
from tests.fakes import END_TOKENS, GREEDY, N_VOCAB, FakeTarget, extend_hash, toy_sampler

WARM = SamplingParameters(seed=6, temperature=1, top_k=0, top_p=1, min_p=0, ignore_eos=True)
PENALIZED = WARM.model_copy(update={"presence_penalty": 3.0})
PROMPT = [4, 9]


def branching(n_branches=3, n_ahead=6, sampling=WARM, **options):
    """A harness whose drafter has nothing left to do for one sequence."""
    harness = DrafterHarness(n_branches=n_branches, n_ahead=n_ahead, **options)
    harness.open(tokens=PROMPT, sampling=sampling)
    harness.drain()
    return harness


def state(harness):
    return harness.drafter._sequences["s"]


def branches(harness):
    """(place in the main line, tokens) of each branch, early ones first."""
    line = state(harness)
    return sorted((each.start - line.main.start, each.tokens) for each in line.branches)


def chosen(text, sampling=WARM, n=1):
    """What the draft model writes after a text."""
    text = list(text)
    for _ in range(n):
        logits = DrafterHarness().model._row(functools.reduce(extend_hash, text, 0))
        text.append(toy_sampler(sampling, text).choose(logits, len(text)))
    return text[-n:]


@pytest.mark.parametrize("sampling", [WARM, PENALIZED], ids=["plain", "penalized"])
def test_a_branch_is_a_runner_up_and_what_follows_it(sampling):
    harness = branching(sampling=sampling)
    main = state(harness).main
    assert len(branches(harness)) == 3
    for place, tokens in branches(harness):
        assert tokens[0] in {choice.token for choice in main.drafted[place].runners_up}
        text = [*PROMPT, *main.tokens[:place], tokens[0]]
        assert tokens[1:] == chosen(text, sampling, len(tokens) - 1)


def test_branches_start_where_the_text_is_likeliest_to_leave_the_main_line():
    harness = branching(n_branches=2, n_beside_main=0)
    worth, reach = {}, 1.0
    for place, each in enumerate(state(harness).main.drafted[:-1]):  # behind the last one there is no room
        worth |= {(place, choice.token): reach * choice.confidence for choice in each.runners_up}
        reach *= each.confidence
    best = sorted(worth, key=lambda entry: -worth[entry])[:2]
    assert [(place, tokens[0]) for place, tokens in branches(harness)] == sorted(best)


def test_two_branches_may_leave_the_main_line_at_the_same_place():
    harness = branching(n_branches=8)
    places = [place for place, _ in branches(harness)]
    assert len(places) > len(set(places))


def test_without_branches_there_are_none():
    harness = branching(n_branches=0)
    assert branches(harness) == []
    assert harness.drafter.draft("s").parents is None


def test_a_branch_has_an_end():
    harness = branching(n_branch_tokens=3, n_ahead=16)
    assert max(len(tokens) for _, tokens in branches(harness)) == 3


def test_no_branch_goes_further_than_the_main_line_may():
    harness = branching(n_ahead=4)
    assert branches(harness)
    assert all(place + len(tokens) <= 4 for place, tokens in branches(harness))


def test_no_branch_begins_with_an_end_token_or_goes_on_behind_one():
    for seed in range(20):
        sampling = WARM.model_copy(update={"seed": seed, "ignore_eos": False})
        harness = branching(sampling=sampling, n_ahead=12)
        assert all(END_TOKENS.isdisjoint(tokens[:-1]) for _, tokens in branches(harness))


def test_a_runner_up_that_is_hardly_likely_gets_no_branch():
    cold = WARM.model_copy(update={"temperature": 0.02})
    assert branches(branching(sampling=cold)) == []


def test_the_lead_s_threshold_holds_for_branches_too():
    assert branches(branching())
    harness = DrafterHarness(n_branches=3, n_ahead=6)
    harness.tune(6, min_confidence=1.0)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    assert branches(harness) == []


# When they are decoded


def test_a_main_line_that_the_lead_may_wait_for_is_decoded_alone():
    harness = DrafterHarness(n_branches=3, n_ahead=8)
    harness.open(tokens=PROMPT, sampling=WARM)
    for _ in range(4):
        harness.step()
    assert harness.model.steps == [[2], [1], [1], [1]]


def test_beside_a_main_line_with_a_lead_one_branch_token_is_decoded():
    harness = DrafterHarness(n_branches=3, n_ahead=8)
    harness.open(tokens=PROMPT, sampling=WARM)
    for _ in range(8):
        harness.step()
    assert harness.model.steps[4:] == [[1, 1]] * 4


def test_with_time_to_spare_all_branches_are_decoded_together():
    assert branching(n_beside_main=0).model.steps[:8] == [[2], [1], [1], [1], [1], [1], [1, 1, 1], [1, 1, 1]]


def test_while_one_sequence_is_urgent_no_branch_of_another_grows():
    harness = branching(n_ahead=4)
    harness.open("t", [1, 2, 3], WARM)
    harness.step()
    assert harness.model.steps[-1] == [3]


def test_more_branches_than_a_batch_has_places_take_turns():
    harness = branching(n_branches=3, n_batch=2)
    assert len(branches(harness)) == 3


# What the lead says


def test_a_text_that_takes_a_branch_finds_it_ready():
    harness = branching(n_ahead=8)
    place, tokens = branches(harness)[0]
    main = state(harness).main.tokens
    n_steps = len(harness.model.steps)
    harness.extend(2, [*main[:place], tokens[0]])
    assert harness.drafter.draft("s").tokens == tokens[1:]
    harness.step()
    assert harness.model.steps[n_steps:] == [[1]], "only the branch's last token was not decoded yet"
    assert state(harness).main.tokens[: len(tokens) - 1] == tokens[1:]


@pytest.mark.parametrize("sampling", [WARM, PENALIZED], ids=["plain", "penalized"])
def test_a_branch_that_was_taken_goes_on_as_if_it_had_always_been_the_main_line(sampling):
    harness = branching(n_ahead=8, sampling=sampling)
    place, tokens = branches(harness)[0]
    text = [*PROMPT, *state(harness).main.tokens[:place], tokens[0]]
    harness.extend(2, text[2:])
    harness.drain()
    assert state(harness).main.tokens == chosen(text, sampling, 8)


def test_a_text_may_be_some_way_along_a_branch_already():
    harness = branching(n_ahead=8)
    place, tokens = branches(harness)[0]
    n_steps = len(harness.model.steps)
    harness.extend(2, [*state(harness).main.tokens[:place], *tokens[:2]])
    assert harness.drafter.draft("s").tokens == tokens[2:]
    harness.step()
    assert harness.model.steps[n_steps:] == [[1]]


def test_a_branch_that_was_taken_and_left_again_is_cut_back():
    harness = branching(n_ahead=8)
    place, tokens = branches(harness)[0]
    n_steps = len(harness.model.steps)
    wrong = next(token for token in range(N_VOCAB) if token not in {*END_TOKENS, *tokens})
    text = [*PROMPT, *state(harness).main.tokens[:place], tokens[0], wrong]
    harness.extend(2, text[2:])
    assert harness.drafter.draft("s") is None
    harness.step()
    assert harness.model.steps[n_steps:] == [[1]]
    harness.drain()
    assert state(harness).main.tokens == chosen(text, WARM, 8)


def test_another_token_than_the_runner_up_takes_no_branch():
    harness = branching()
    place, tokens = branches(harness)[0]
    main = state(harness).main
    other = next(
        token for token in range(N_VOCAB) if token not in {tokens[0], main.tokens[place], *END_TOKENS}
    )
    harness.extend(2, [*main.tokens[:place], other])
    assert branches(harness) == []
    assert harness.drafter.draft("s") is None


def test_branches_that_the_text_has_passed_are_given_up():
    harness = branching()
    before = branches(harness)
    n = before[0][0] + 1
    harness.extend(2, state(harness).main.tokens[:n])
    assert branches(harness) == [(place - n, tokens) for place, tokens in before if place >= n]
    assert 0 < len(branches(harness)) < 3
    harness.drafter.check_integrity()


def test_a_branch_where_the_text_ends_now_stays():
    harness = branching()
    place, tokens = next(pair for pair in branches(harness) if pair[0] > 0)
    harness.extend(2, state(harness).main.tokens[:place])
    assert (0, tokens) in branches(harness)


# What is sent


def by_place(lines):
    return sorted(lines, key=lambda each: (each.start, -each.drafted[0].confidence))


def in_order_of_sending(harness):
    line = state(harness)
    return [(each.start - line.main.start, each.tokens) for each in by_place(line.branches)]


def test_the_tree_on_the_wire_has_the_main_line_first_and_each_branch_where_it_forks():
    harness = branching()
    draft = harness.drafter.draft("s")
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


def test_a_runner_up_alone_is_not_sent():
    harness = branching()
    for branch in state(harness).branches:
        del branch.drafted[1:]
    draft = harness.drafter.draft("s")
    assert draft.tokens == state(harness).main.tokens
    assert draft.parents is None


def test_a_message_has_no_more_tokens_than_the_protocol_allows():
    harness = DrafterHarness(n_branches=3, n_ahead=MAX_DRAFT_TOKENS - 4, n_window=200)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    draft = harness.drafter.draft("s")
    assert len(draft.tokens) <= MAX_DRAFT_TOKENS
    assert draft.tokens[: MAX_DRAFT_TOKENS - 4] == state(harness).main.tokens


def test_each_token_is_sent_with_its_confidence():
    harness = branching()
    drafted = [*state(harness).main.drafted]
    for branch in by_place(state(harness).branches):
        drafted += branch.drafted
    sent = harness.drafter.draft("s").confidences
    assert sent == pytest.approx([each.confidence for each in drafted], abs=1e-4)
    assert len({*sent}) > 3


def test_growth_is_urgent_until_the_lead_has_enough_to_check_and_when_the_main_line_is_complete():
    harness = DrafterHarness(n_branches=1, n_ahead=8)
    harness.open(tokens=PROMPT, sampling=WARM)
    urgencies = []
    while len(state(harness).main.drafted) < 8:
        urgencies += {update.urgency for update in harness.drafter.step()} - {"batched"} or {"batched"}
    assert urgencies == ["soon"] * 3 + ["immediate"] + ["batched"] * 3 + ["immediate"]
    assert {growth.urgency for growth in harness.drafter.step()} <= {"later"}


# Rooms and windows


def sliding():
    """A harness whose main line is about to fill its window, with branches."""
    harness = DrafterHarness(n_branches=3, n_ahead=16, n_window=10)
    harness.tune(6)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    assert branches(harness)
    harness.tune(16)
    return harness


def test_a_window_that_slides_drops_the_branches():
    harness = sliding()
    while state(harness).window_start == 0:
        harness.step()
    assert branches(harness) == []
    harness.drafter.check_integrity()


def test_a_new_window_is_read_before_a_branch_shares_it():
    harness = sliding()
    while not harness.drafter.idle:
        harness.step()
        harness.drafter.check_integrity()
        start, n = state(harness).window_start, len(state(harness).main.cache)
        assert all(start < each.start <= start + n for each in state(harness).branches)


def test_no_branch_reaches_behind_the_window_where_the_main_line_stops_before_it():
    longest = 0
    for seed in range(20):
        harness = DrafterHarness(n_branches=3, n_ahead=16, n_window=6)
        harness.tune(16, min_confidence=0.3)
        harness.open(tokens=PROMPT, sampling=WARM.model_copy(update={"seed": seed, "temperature": 0.3}))
        harness.drain()
        assert max(map(len, harness.model.slots)) <= 6
        longest = max([longest, *(len(each.cache) for each in state(harness).branches)])
    assert longest == 6


def test_closing_gives_all_slots_back():
    harness = branching()
    harness.close()
    harness.drafter.check_integrity()
    assert harness.drafter._slots.n_idle_branches == 6
    harness.open("t", [7, 7])
    harness.drain()
    harness.drafter.reset()
    harness.drafter.check_integrity()


def test_a_branch_takes_no_room_for_what_it_shares():
    harness = branching(n_branches=1, n_ahead=4)
    (branch,) = state(harness).branches
    n_own = len(branch.tokens) - 1  # the last one is not decoded
    assert harness.model.n_cells_used == len(state(harness).main.cache) + n_own


class Full(FakeTarget):
    """Has no room while it is said to be `full`."""

    full = False

    def decode(self, spans):
        if self.full:
            raise KvCacheFullError("no room")
        return super().decode(spans)


def full_bench(**options):
    harness = branching(target=Full, **options)
    harness.model.full = True
    return harness


def test_a_full_cache_costs_the_branches_first():
    harness = full_bench()
    harness.extend(2, state(harness).main.tokens[:1])
    assert harness.step() == []
    assert branches(harness) == []
    harness.model.full = False
    harness.drain()
    assert len(state(harness).main.tokens) == 6
    assert branches(harness) == [], "there was no room for any"


def test_then_the_texts_that_have_ended_and_at_last_a_sequence(caplog):
    harness = branching(target=Full, n_branches=0)
    harness.open("t", [1, 2, 3])
    harness.drain()
    harness.close("t")
    harness.extend(2, [9])
    harness.model.full = True
    for n_left in (1, 0):
        harness.step()
        assert len(harness.drafter._sequences) == n_left
        harness.drafter.check_integrity()
    assert harness.drafter.idle
    assert sum(record.levelname == "WARNING" for record in caplog.records) == 1


def test_when_a_sequence_has_ended_there_is_room_for_branches_again():
    harness = full_bench()
    harness.extend(2, state(harness).main.tokens[:1])
    harness.step()
    harness.model.full = False
    harness.close()
    harness.open("t", PROMPT, WARM)
    harness.drain()
    assert harness.drafter._sequences["t"].branches


# Confidence


def test_a_draft_ends_where_it_is_no_longer_sure_enough():
    harness = DrafterHarness(n_ahead=12)
    harness.tune(12, min_confidence=0.3)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    main = state(harness).main
    assert 1 <= len(main.drafted) < 12
    assert main.confidence < 0.3 <= main.confidence / main.drafted[-1].confidence


def test_one_token_is_always_drafted():
    harness = DrafterHarness()
    harness.tune(4, min_confidence=1.0)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    assert len(state(harness).main.drafted) == 1


def test_what_was_accepted_no_longer_counts_against_the_rest():
    harness = DrafterHarness(n_ahead=12)
    harness.tune(12, min_confidence=0.1)
    harness.open(tokens=PROMPT, sampling=WARM)
    harness.drain()
    main = list(state(harness).main.tokens)
    harness.extend(2, main[:-1])
    harness.drain()
    assert len(state(harness).main.tokens) > 1


def test_the_lead_cannot_ask_for_more_than_the_back_was_set_to():
    harness = DrafterHarness(n_ahead=4)
    harness.tune(9)
    harness.open(sampling=GREEDY)
    assert len(harness.last_draft().tokens) == 4


def test_what_a_lead_asked_for_ends_with_the_connection():
    harness = DrafterHarness(n_ahead=4)
    harness.tune(0, min_confidence=1.0)
    harness.drafter.reset()
    harness.open(sampling=GREEDY)
    assert len(harness.last_draft().tokens) == 4


def test_the_lead_can_ask_for_nothing_and_for_more_again():
    harness = DrafterHarness(n_ahead=4)
    harness.tune(0)
    harness.open(sampling=GREEDY)
    assert harness.drafter.idle
    harness.tune(2)
    assert len(harness.last_draft().tokens) == 2
