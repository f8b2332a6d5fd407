import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from shared.drafting.sequence_state import SEND_SECONDS, SOON_SECONDS, DraftBranch
from shared.llama.memory_traits import PLAIN
from shared.sampling.parameters import SamplingParameters
from shared.sampling.sampler import RankedToken
from shared.slot_cache import SlotCache
from tests.shared.drafting.drafting import DrafterHarness
from tests.toy_model import GREEDY, toy_sampler

URGENCIES = ("immediate", "soon", "batched")


def branch():
    return DraftBranch(1, [[RankedToken(2, 0.5)]]).begin(SlotCache(9, PLAIN), toy_sampler(GREEDY, [1]))


class Sending:
    """A drafter of three texts that grow when a test says so. `due` names the texts whose drafts are sent."""

    def __init__(self):
        harness = DrafterHarness(n_slots=3)
        for name in "stu":
            harness.open(name)
        self.drafter = harness.drafter
        self.drafter.step()
        self.names(0.0, at_once=True)

    def due(self, now, **grown):
        for name, urgency in grown.items():
            self.grow(self.drafter.sequences[name], urgency)
        return self.names(now)

    def grow(self, state, urgency):
        """Give `state` a token: the last token, or one before the lead has enough, or of a side branch."""
        n_ahead = len(state.main.ranked) + 1 if urgency == "immediate" else 1000
        state.options = dataclasses.replace(state.options, n_ahead=n_ahead)
        state.append(branch() if urgency == "batched" else state.main, [RankedToken(5, 0.5)])

    def rest(self):
        """Let no draft grow from now on."""
        for state in self.drafter.sequences.values():
            state.options = dataclasses.replace(state.options, n_ahead=1)

    def names(self, now, **options):
        return "".join(draft.sequence for _, draft in self.drafter.take_due(now, **options))


def delay(state):
    """Seconds after the last message until the draft is sent, if it stays as it is now."""
    state.sent_at = 0.0
    seconds = next(seconds for seconds in (0.0, SOON_SECONDS, SEND_SECONDS) if state.is_due(seconds))
    state.take_draft(seconds)
    return seconds


def drafting(n_ahead):
    harness = DrafterHarness(n_branches=1, n_ahead=n_ahead)
    harness.open(tokens=[4, 9], sampling=SamplingParameters(seed=6, temperature=1, ignore_eos=True))
    return harness.drafter, harness.drafter.sequences["s"]


def test_a_draft_is_sent_at_once_when_the_lead_has_enough_to_verify_and_when_the_main_path_is_complete():
    drafter, state = drafting(n_ahead=8)
    delays = []
    while len(state.main.ranked) < 8:
        drafter.step()
        delays.append(delay(state))
    assert delays == [SOON_SECONDS] * 3 + [0] + [SEND_SECONDS] * 3 + [0]


def test_what_is_complete_stays_urgent_when_a_branch_grows():
    drafter, state = drafting(n_ahead=4)
    while not drafter.idle:
        drafter.step()
    assert state.branches
    assert delay(state) == 0


def sending():
    """A `Sending` that has just sent something."""
    harness = Sending()
    harness.grow(harness.drafter.sequences["s"], "batched")
    assert harness.names(0.0, at_once=True) == "s"
    return harness


def test_what_the_lead_may_wait_for_is_sent_a_little_after_the_last_message():
    harness = sending()
    times = [SOON_SECONDS * n for n in (0.7, 0.9, 1.1, 2, 2.2)]
    assert [harness.due(now, s="soon") for now in times] == ["", "", "s", "", "s"]


def test_the_rest_is_sent_once_in_an_interval():
    harness = sending()
    sent = [n for n in range(1, 21) if harness.due(n * 0.26 * SEND_SECONDS, s="batched")]
    assert sent == [4, 8, 12, 16, 20]


def test_what_waits_is_sent_in_time_though_nothing_grows_and_before_a_rest():
    harness = sending()
    assert harness.due(SEND_SECONDS / 5, s="batched") == ""
    assert harness.due(SEND_SECONDS) == "s"
    assert harness.due(1.2 * SEND_SECONDS, s="batched") == ""
    harness.rest()
    assert harness.due(1.3 * SEND_SECONDS) == "s"


def test_an_immediate_draft_does_not_take_others_with_it():
    harness = sending()
    assert harness.due(0.001, s="batched", t="immediate") == "t"
    assert [harness.names(0.0011, at_once=True) for _ in range(2)] == ["s", ""]


growths = st.dictionaries(st.sampled_from("stu"), st.sampled_from(URGENCIES))


@given(st.lists(st.tuples(growths, st.floats(0, 0.003)), max_size=20))
def test_each_draft_is_sent_after_it_grew_for_the_last_time(steps):
    harness, now, unsent = Sending(), 0.0, set()
    for grown, seconds in steps:
        now += seconds
        unsent |= grown.keys()
        unsent -= set(harness.due(now, **grown))
    assert set(harness.names(now, at_once=True)) == unsent
