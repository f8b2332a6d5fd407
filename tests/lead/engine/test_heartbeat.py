import queue

import pytest

from lead.engine.events import Alive
from lead.engine.heartbeat import Heartbeat


@pytest.fixture
def start():
    """A function that starts heartbeats, and returns them with the queue of their messages."""
    started = []

    def start(has_proceeded=lambda: True):
        sent = queue.Queue()
        started.append(Heartbeat(0.001, sent.put))
        started[-1].watch(has_proceeded)
        started[-1].start()
        return started[-1], sent

    yield start
    for heartbeat in started:
        heartbeat.end()
        heartbeat.join(60)


def test_while_the_model_loads_it_beats(start):
    _, sent = start()
    assert [sent.get(timeout=60) for _ in range(3)] == [Alive()] * 3


def test_it_beats_only_when_the_engine_has_proceeded(start):
    answers, asked = iter([False, True, False, False, True]), queue.Queue()

    def has_proceeded():
        answer = next(answers, False)
        asked.put(answer)
        return answer

    heartbeat, sent = start(has_proceeded)
    seen = [asked.get(timeout=60) for _ in range(20)]
    heartbeat.end()
    heartbeat.join(60)
    assert sent.qsize() == sum(seen) == 2
