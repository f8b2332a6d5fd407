"""The worker: takes in all that was told, then drafts; an error in its thread is handed over."""

import queue

import pytest

from back.worker import Worker
from shared.protocol import Close, Draft, Extend, Open
from tests.fakes import GREEDY

OPEN = Open(sequence="s", sampling=GREEDY, tokens=[1])
EXTEND = Extend(sequence="s", start=1, tokens=[2])
CLOSE = Close(sequence="s", reason="ended")
DRAFT = Draft(sequence="s", base=1, tokens=[5])


class ScriptedDrafter:
    """Notes what it is told; each step gives the next result of its script. Idle when that is used up."""

    def __init__(self, *results):
        self._results = list(results)
        self.told = []

    @property
    def idle(self):
        return not self._results

    def follow(self, message):
        self.told.append(message)

    def reset(self):
        self.told.append("reset")

    def step(self):
        if not self._results:
            return []
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def drafts():
    return queue.Queue()


def worker_of(drafter, drafts, on_failure=None):
    return Worker(drafter, drafts.put, on_failure or drafts.put)


def test_a_busy_worker_does_not_wait_for_news(drafts):
    worker = worker_of(ScriptedDrafter([DRAFT]), drafts)
    worker.step()
    assert drafts.get_nowait() == DRAFT


def test_all_news_is_taken_in_before_a_step_and_in_order(drafts):
    drafter = ScriptedDrafter([DRAFT])
    worker = worker_of(drafter, drafts)
    for message in (OPEN, EXTEND, CLOSE):
        worker.tell(message)
    worker.reset()
    worker.tell(OPEN)
    worker.step()
    assert drafter.told == [OPEN, EXTEND, CLOSE, "reset", OPEN]


def test_an_idle_worker_takes_in_what_was_told(drafts):
    drafter = ScriptedDrafter()
    worker = worker_of(drafter, drafts)
    worker.tell(OPEN)
    worker.step()
    assert drafter.told == [OPEN]
    assert drafts.empty()


def test_every_draft_of_a_step_is_handed_on(drafts):
    other = DRAFT.model_copy(update={"sequence": "t"})
    worker_of(ScriptedDrafter([DRAFT, other]), drafts).step()
    assert [drafts.get_nowait(), drafts.get_nowait()] == [DRAFT, other]


def test_a_started_worker_drafts_by_itself(drafts):
    worker_of(ScriptedDrafter([DRAFT]), drafts).start()
    assert drafts.get(timeout=10) == DRAFT


def test_an_error_in_its_thread_is_handed_over(drafts):
    failures = queue.Queue()
    error = RuntimeError("no memory")
    worker_of(ScriptedDrafter([DRAFT], error), drafts, failures.put).start()
    assert failures.get(timeout=10) is error
    assert drafts.get_nowait() == DRAFT
