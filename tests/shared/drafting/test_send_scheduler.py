"""When drafts are sent: what the lead may wait for at once, the rest together, and nothing is lost."""

from hypothesis import given
from hypothesis import strategies as st

from shared.drafting.drafter_options import DrafterOptions
from shared.drafting.send_scheduler import SendScheduler
from shared.drafting.sequence_state import DraftPath, SequenceState
from shared.llama.memory_traits import PLAIN
from shared.slot_cache import SlotCache
from tests.fakes import GREEDY, toy_sampler

URGENCIES = ("immediate", "soon", "batched")


class Sending:
    """A scheduler and three sequences; `due` gives the names of those that are sent after they grew."""

    def __init__(self):
        self.scheduler = SendScheduler(5.0, 1.5)
        self.sequences = {}
        for name in "stu":
            path = DraftPath(SlotCache(0, PLAIN), toy_sampler(GREEDY, [1]), 1)
            self.sequences[name] = SequenceState(name, GREEDY, [1], path, DrafterOptions(3, 100, 4))

    def due(self, now, *, idle=False, **grown):
        for name, urgency in grown.items():
            self.sequences[name].unsent = urgency
        return names(self.scheduler.due(self.sequences.values(), now, idle=idle))

    def flush(self, now):
        return names(self.scheduler.flush(self.sequences.values(), now))


def names(sequences):
    return "".join(sequence.id for sequence in sequences)


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
