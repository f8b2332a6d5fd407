"""The pace of messages: what the lead may wait for goes at once, the rest together, and nothing is lost."""

from hypothesis import given
from hypothesis import strategies as st

from shared.drafting.send_scheduler import DraftUpdate, SendScheduler

URGENT, SOON, QUIET = DraftUpdate("s", "immediate"), DraftUpdate("s", "soon"), DraftUpdate("s", "batched")


def paced(interval=5.0):
    """A pace that has just sent something."""
    pace = SendScheduler(interval, 1.5)
    assert pace.due([QUIET], 0.0, idle=False) == ["s"]
    return pace


def test_the_first_growth_is_sent_at_once():
    assert SendScheduler(5, 1.5).due([QUIET], 0.0, idle=False) == ["s"]


def test_what_is_urgent_is_sent_at_once_each_time():
    pace = paced()
    assert [pace.due([URGENT], 1.0, idle=False) for _ in range(3)] == [["s"]] * 3


def test_what_the_lead_may_wait_for_is_sent_a_little_after_the_last_message():
    pace = paced()
    assert [pace.due([SOON], time, idle=False) for time in (1.0, 1.4, 1.5, 2.9, 3.0)] == [
        [],
        [],
        ["s"],
        [],
        ["s"],
    ]


def test_what_is_complete_stays_urgent_when_a_branch_grows():
    pace = paced()
    assert pace.due([URGENT, QUIET], 1.0, idle=False) == ["s"]


def test_what_is_not_urgent_is_sent_once_in_an_interval():
    pace = paced()
    sent = [time for time in range(1, 21) if pace.due([QUIET], time, idle=False)]
    assert sent == [5, 10, 15, 20]


def test_what_waits_is_sent_in_time_though_nothing_grows():
    pace = paced()
    assert pace.due([QUIET], 1.0, idle=False) == []
    assert pace.due([], 5.0, idle=False) == ["s"]


def test_what_waits_is_sent_before_a_rest():
    pace = paced()
    pace.due([QUIET], 1.0, idle=False)
    assert pace.due([], 1.1, idle=True) == ["s"]


def test_what_was_sent_as_urgent_waits_no_more():
    pace = paced()
    pace.due([QUIET], 1.0, idle=False)
    pace.due([URGENT], 2.0, idle=False)
    assert pace.due([], 2.1, idle=True) == []


def test_an_urgent_draft_does_not_take_others_with_it():
    pace = paced()
    assert pace.due([QUIET, DraftUpdate("t", "immediate")], 1.0, idle=False) == ["t"]
    assert pace.flush(1.1) == ["s"]


def test_a_draft_that_grew_twice_in_a_step_is_sent_once():
    assert paced().due([URGENT, QUIET, URGENT], 1.0, idle=False) == ["s"]


def test_after_a_flush_nothing_waits():
    pace = paced()
    pace.due([QUIET], 1.0, idle=False)
    assert pace.flush(1.0) == ["s"]
    assert pace.flush(1.0) == []


growths = st.lists(st.builds(DraftUpdate, st.sampled_from("stu"), st.booleans()), max_size=4)


@given(st.lists(st.tuples(growths, st.floats(0, 3)), max_size=20))
def test_each_draft_is_sent_after_it_grew_for_the_last_time(steps):
    pace, now, unsent = SendScheduler(5.0, 1.5), 0.0, set()
    for grown, seconds in steps:
        now += seconds
        unsent |= {growth.sequence for growth in grown}
        unsent -= set(pace.due(grown, now, idle=False))
    assert set(pace.due([], now, idle=True)) == unsent
