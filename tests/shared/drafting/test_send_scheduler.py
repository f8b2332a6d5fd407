"""When drafts are sent: what the lead may wait for at once, the rest together, and nothing is lost."""

from hypothesis import given
from hypothesis import strategies as st

from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.send_scheduler import SendScheduler
from shared.drafting.sequence_state import DraftPath, SequenceState
from shared.llama.memory_traits import PLAIN
from shared.sampling.coupled_choice import RankedToken
from shared.sampling.parameters import SamplingParameters
from shared.slot_cache import SlotCache
from tests.fakes import GREEDY, toy_sampler
from tests.shared.drafting.drafting import DrafterHarness

URGENCIES = ("immediate", "soon", "batched")
INTERVAL, SOON = 5.0, 1.5


def path():
    return DraftPath(SlotCache(0, PLAIN), toy_sampler(GREEDY, [1]), 1, [[RankedToken(2, 0.5)]])


class Sending:
    """A scheduler and three sequences; `due` gives the names of those that are sent after they grew."""

    def __init__(self):
        self.scheduler = SendScheduler(INTERVAL, SOON)
        self.sequences = {name: SequenceState(name, GREEDY, [1], path(), None, (), None) for name in "stu"}

    def due(self, now, *, idle=False, **grown):
        for name, urgency in grown.items():
            self.grow(self.sequences[name], urgency)
        return names(self.scheduler.due(self.sequences.values(), now, idle=idle))

    def grow(self, state, urgency):
        n_ahead = len(state.main.ranked) + 1 if urgency == "immediate" else 1000
        state.options = DrafterOptions(3, 100, n_ahead)
        state.append(path() if urgency == "batched" else state.main, [RankedToken(3, 0.5)])

    def flush(self, now):
        return names(self.scheduler.flush(self.sequences.values(), now))


def names(drafts):
    return "".join(draft.sequence for _, draft in drafts)


def delay(state):
    """Seconds after the last message until the draft is sent."""
    for seconds in (0.0, SOON, INTERVAL):
        scheduler = SendScheduler(INTERVAL, SOON)
        scheduler.flush([], 0.0)
        if scheduler.due([state], seconds, idle=False):
            return seconds
    raise AssertionError("it is never sent")


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
    assert delays == [SOON] * 3 + [0] + [INTERVAL] * 3 + [0]


def test_what_is_complete_stays_urgent_when_a_branch_grows():
    drafter, state = drafting(n_ahead=4)
    while not drafter.idle:
        drafter.step()
    assert state.branches
    assert delay(state) == 0


def sending():
    """One that has just sent something."""
    harness = Sending()
    assert harness.due(0.0, s="batched") == "s"
    return harness


def test_what_is_immediate_is_sent_at_once_each_time():
    harness = sending()
    assert [harness.due(1.0, s="immediate") for _ in range(3)] == ["s"] * 3


def test_what_the_lead_may_wait_for_is_sent_a_little_after_the_last_message():
    harness = sending()
    assert [harness.due(now, s="soon") for now in (1.0, 1.4, 1.5, 2.9, 3.0)] == ["", "", "s", "", "s"]


def test_the_rest_is_sent_once_in_an_interval():
    harness = sending()
    assert [now for now in range(1, 21) if harness.due(now, s="batched")] == [5, 10, 15, 20]


def test_what_waits_is_sent_in_time_though_nothing_grows_and_before_a_rest():
    harness = sending()
    assert harness.due(1.0, s="batched") == ""
    assert harness.due(5.0) == "s"
    assert harness.due(6.0, s="batched") == ""
    assert harness.due(6.1, idle=True) == "s"


def test_an_immediate_draft_does_not_take_others_with_it():
    harness = sending()
    assert harness.due(1.0, s="batched", t="immediate") == "t"
    assert [harness.flush(1.1), harness.flush(1.1)] == ["s", ""]


growths = st.dictionaries(st.sampled_from("stu"), st.sampled_from(URGENCIES))


@given(st.lists(st.tuples(growths, st.floats(0, 3)), max_size=20))
def test_each_draft_is_sent_after_it_grew_for_the_last_time(steps):
    harness, now, unsent = Sending(), 0.0, set()
    for grown, seconds in steps:
        now += seconds
        unsent |= grown.keys()
        unsent -= set(harness.due(now, **grown))
    assert set(harness.due(now, idle=True)) == unsent
