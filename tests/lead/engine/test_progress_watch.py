"""When an engine that looks alive is given up."""

from lead.engine.progress_watch import MOST_SECONDS, ProgressWatch


def test_waiting_too_long_is_noticed():
    progress = ProgressWatch(now=5.0)
    seconds = next(n for n in range(100) if progress.has_stalled(5.0 + n))
    assert seconds == MOST_SECONDS


def test_whatever_happens_begins_the_time_anew():
    progress = ProgressWatch(now=0.0)
    for now in range(100):
        assert not progress.has_stalled(float(now))
        if now % 20 == 0:
            progress.made()


def test_the_time_for_which_a_process_was_stopped_does_not_count():
    progress = ProgressWatch(now=0.0)
    assert not progress.has_stalled(3600.0)
