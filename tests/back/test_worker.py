"""The worker handles all messages in its inbox, then drafts; it reports an error in its thread."""

import itertools
import queue
from collections import Counter

import pytest

from back.worker import DraftWorker
from shared.drafting.send_scheduler import SendScheduler
from shared.protocol import Close, Draft, Extend, Open, Tune
from tests.fakes import GREEDY

OPEN = Open(sequence="s", sampling=GREEDY, tokens=[1])
EXTEND = Extend(sequence="s", start=1, tokens=[2])
CLOSE = Close(sequence="s", reason="ended")
DRAFT = Draft(sequence="s", base=1, tokens=[5])


class ScriptedSequence:
    def __init__(self, group):
        self.group = group
        self.unsent = self.newest = None

    def draft(self):
        return self.newest


class ScriptedDrafter:
    """Records the messages; each step gives the next result of its script. Idle when that is used up.

    A result is the drafts that grew, or an error; `paced` are those that are not urgent.
    """

    def __init__(self, *results, paced=()):
        self._results = list(results)
        self._paced = paced
        self.told = []
        self.tuned = {}
        self.only = []
        self.n_right, self.n_wrong, self.n_decoded = Counter(), Counter(), Counter()
        self._open = {}

    @property
    def sequences(self):
        return self._open.values()

    @property
    def waiting(self):
        waiting = {}
        for name, sequence in self._open.items():
            waiting.setdefault(sequence.group, []).append(name)
        return waiting

    @property
    def idle(self):
        return not self._results

    def handle(self, message, lead):
        self.told.append(message)
        self.tuned[lead] = message if isinstance(message, Tune) else self.tuned.get(lead)
        if isinstance(message, Open):
            self._open[message.sequence] = ScriptedSequence(lead)
        if isinstance(message, Close):
            self._open.pop(message.sequence, None)

    def reset(self, lead):
        self.told.append("reset")
        self._open = {name: each for name, each in self._open.items() if each.group != lead}

    def step(self, only=None):
        self.only.append(only)
        self.n_decoded = Counter(self._open[name].group for name in only or ())
        result = self._results.pop(0) if self._results else []
        if isinstance(result, Exception):
            raise result
        for draft in result:
            if sequence := self._open.get(draft.sequence):
                sequence.newest, sequence.unsent = draft, "batched" if draft in self._paced else "immediate"


@pytest.fixture
def drafts():
    return queue.Queue()


def worker_of(drafter, drafts, on_failure=None, *, opened="st", n_leads=1, **options):
    """The clock only has to go: 1 ms a look, for a pace of 5 ms."""
    ticks = itertools.count()
    posts = [lambda draft, lead=lead: drafts.put((lead, draft)) for lead in range(n_leads)]
    worker = DraftWorker(
        drafter,
        SendScheduler(),
        posts if n_leads > 1 else [drafts.put],
        on_failure or drafts.put,
        lambda: next(ticks) / 1000,
        **options,
    )
    for sequence in opened:
        worker._handle(0, open_of(sequence))
    return worker


def open_of(sequence):
    return OPEN.model_copy(update={"sequence": sequence})


def sent(drafts):
    return [drafts.get_nowait() for _ in range(drafts.qsize())]


def draft_of(*tokens, sequence="s"):
    return Draft(sequence=sequence, base=1, tokens=tokens)


def test_all_news_is_taken_in_before_a_step_and_in_order(drafts):
    drafter = ScriptedDrafter([DRAFT])
    worker = worker_of(drafter, drafts, opened="")
    for message in (OPEN, EXTEND, CLOSE):
        worker.inbox_of(0).on_message(message)
    worker.inbox_of(0).on_disconnect()
    worker.inbox_of(0).on_message(OPEN)
    worker.step()
    assert drafter.told == [OPEN, EXTEND, CLOSE, "reset", OPEN]


def test_an_idle_worker_takes_in_what_was_told(drafts):
    drafter = ScriptedDrafter()
    worker = worker_of(drafter, drafts, opened="")
    worker.inbox_of(0).on_message(OPEN)
    worker.step()
    assert drafter.told == [OPEN]
    assert drafts.empty()


def test_every_draft_of_a_step_is_handed_on(drafts):
    other = draft_of(5, sequence="t")
    worker_of(ScriptedDrafter([DRAFT, other]), drafts).step()
    assert sent(drafts) == [DRAFT, other]


def test_what_is_not_urgent_waits_for_its_time_and_is_sent_as_it_is_then(drafts):
    growing = [draft_of(*range(n)) for n in range(1, 12)]
    worker = worker_of(ScriptedDrafter(*([draft] for draft in growing), paced=growing), drafts)
    for _ in range(10):
        worker.step()
    assert sent(drafts) == [growing[0], growing[5]]


def test_nothing_is_left_unsent_when_there_is_nothing_else_to_do(drafts):
    growing = [draft_of(5), draft_of(5, 6), draft_of(5, 6, 7)]
    worker = worker_of(ScriptedDrafter(*([draft] for draft in growing), paced=growing), drafts)
    for _ in growing:
        worker.step()
    assert sent(drafts) == [growing[0], growing[2]]


def test_news_makes_it_send_what_waits(drafts):
    growing = [draft_of(5), draft_of(5, 6)]
    worker = worker_of(ScriptedDrafter(*([draft] for draft in growing), [], [], paced=growing), drafts)
    worker.step()
    worker.step()
    worker.inbox_of(0).on_message(EXTEND)
    worker.step()
    assert sent(drafts) == growing


def test_of_a_sequence_that_was_closed_nothing_is_sent(drafts):
    growing = [draft_of(5), draft_of(5, 6)]
    worker = worker_of(ScriptedDrafter(*([draft] for draft in growing), [], paced=growing), drafts)
    worker.step()
    worker.step()
    worker.inbox_of(0).on_message(CLOSE)
    worker.step()
    assert sent(drafts) == growing[:1]


def test_an_error_in_its_thread_is_handed_over(drafts):
    failures = queue.Queue()
    error = RuntimeError("no memory")
    worker_of(ScriptedDrafter([DRAFT], error), drafts, failures.put).start()
    assert failures.get(timeout=60) is error
    assert drafts.get_nowait() == DRAFT


def test_drafts_go_to_the_lead_whose_sequence_it_is(drafts):
    other = draft_of(5, sequence="u")
    worker = worker_of(ScriptedDrafter([DRAFT, other]), drafts, opened="s", n_leads=2)
    worker.inbox_of(1).on_message(open_of("u"))
    worker.step()
    assert sent(drafts) == [(0, DRAFT), (1, other)]


def test_a_lead_cannot_open_more_than_its_share(drafts):
    drafter = ScriptedDrafter([DRAFT])
    worker = worker_of(drafter, drafts, opened="abcd", n_leads=2, n_sequences=2)
    worker.inbox_of(1).on_message(open_of("e"))
    worker.step()
    assert [message.sequence for message in drafter.told] == ["a", "b", "e"]


def test_when_one_lead_is_lost_the_others_are_served(drafts):
    other = draft_of(5, sequence="u")
    drafter = ScriptedDrafter([DRAFT, other])
    worker = worker_of(drafter, drafts, opened="s", n_leads=2)
    worker.inbox_of(1).on_message(open_of("u"))
    worker.inbox_of(0).on_disconnect()
    worker.step()
    assert sent(drafts) == [(1, other)]
    assert drafter.only == [{"u"}]


def test_each_lead_tunes_its_own_sequences(drafts):
    drafter = ScriptedDrafter([])
    worker = worker_of(drafter, drafts, opened="s", n_leads=2)
    tune = Tune(n_ahead=2, min_confidence=0)
    worker.inbox_of(1).on_message(tune)
    worker.step()
    assert drafter.tuned == {0: None, 1: tune}
