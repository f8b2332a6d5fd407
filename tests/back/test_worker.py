"""The worker handles all messages in its inbox, then drafts. It reports errors of its thread.

The drafter is real, beside a toy model. The lead verifies `N_AHEAD // 2` of its tokens in a step.
"""

import itertools
import queue
import threading

import pytest

from back.lead_shares import LeadShares
from back.worker import DraftWorker
from shared.errors import DecodeAbortedError
from shared.protocol import Close, Extend, Open, Tune
from tests.shared.drafting.drafting import LONG, SAMPLED, TEXT, DrafterHarness
from tests.toy_model import GREEDY, FakeTarget

N_AHEAD = 16


def open_of(sequence):
    return Open(sequence=sequence, sampling=SAMPLED.model_copy(update={"ignore_eos": True}), tokens=LONG)


OPEN = open_of("s")
EXTEND = Extend(sequence="s", start=2, tokens=[5])
CLOSE = Close(sequence="s", reason="ended")


class Working:
    """A worker for `n_leads`. Its clock advances 0.55 ms with each look, and 1.1 ms with each decode."""

    def __init__(
        self, *, opened="", n_leads=1, on_failure=None, target=FakeTarget, interrupt=None, **options
    ):
        harness = DrafterHarness(n_slots=6, n_ahead=N_AHEAD, target=target, interrupt=interrupt)
        self.drafter, self.model = harness.drafter, harness.model
        self.drafts = queue.Queue()
        ticks = itertools.count()
        self.worker = DraftWorker(
            self.drafter,
            [lambda draft, lead=lead: self.drafts.put((lead, draft)) for lead in range(n_leads)],
            on_failure,
            lambda: 0.00055 * next(ticks),
            shares=LeadShares(n_leads) if n_leads > 1 else None,
            **options,
        )
        self.tell(*map(open_of, opened))

    def tell(self, *messages, lead=0):
        for message in messages:
            self.worker.on_message(lead, message)

    def step(self, n=1):
        for _ in range(n):
            self.worker.step()

    def sent(self):
        return [self.drafts.get_nowait() for _ in range(self.drafts.qsize())]

    def lengths(self):
        return [len(draft.tokens) for _, draft in self.sent()]


def test_all_messages_are_handled_before_a_step_and_in_order():
    working = Working()
    working.tell(OPEN, EXTEND, CLOSE, OPEN)
    working.worker.on_message(0, None)
    working.tell(OPEN, EXTEND, open_of("t"))
    working.step()
    committed = {name: state.committed for name, state in working.drafter.sequences.items()}
    assert committed == {"s": [*LONG, 5], "t": LONG}
    assert [draft.sequence for _, draft in working.sent()] == ["s", "t"]


def test_what_the_lead_does_not_wait_for_is_sent_later_and_the_last_before_a_rest():
    working = Working(opened="s")
    working.step(N_AHEAD)
    assert working.lengths() == [*range(1, 9), 13, 16]
    assert working.drafter.idle


def test_a_message_makes_it_send_what_waits():
    working = Working(opened="s")
    working.step(9)
    assert working.lengths()[-1] == 8
    working.tell(open_of("t"))
    working.step()
    assert working.lengths() == [9, 1]


def test_of_a_sequence_that_was_closed_nothing_is_sent():
    working = Working(opened="s")
    working.step(9)
    assert working.lengths()[-1] == 8
    working.tell(CLOSE, open_of("t"))
    working.step()
    assert [draft.sequence for _, draft in working.sent()] == ["t"]


class FailingTarget(FakeTarget):
    """A target that fails in its second decode."""

    def decode(self, spans):
        if self.steps:
            raise RuntimeError("no memory")
        return super().decode(spans)


def test_an_error_in_its_thread_is_handed_over():
    failures = queue.Queue()
    working = Working(opened="s", on_failure=failures.put, target=FailingTarget)
    working.worker.start()
    assert str(failures.get(timeout=60)) == "no memory"
    assert working.lengths() == [1]


@pytest.mark.parametrize(("lost", "served"), [([], [(0, "s"), (1, "u")]), ([0], [(1, "u")])])
def test_drafts_go_to_the_leads_that_are_left_and_whose_sequences_they_are(lost, served):
    working = Working(opened="s", n_leads=2)
    working.tell(open_of("u"), lead=1)
    for lead in lost:
        working.worker.on_message(lead, None)
    working.step()
    assert [(lead, draft.sequence) for lead, draft in working.sent()] == served


def test_a_lead_cannot_open_more_than_its_share():
    working = Working(opened="abcd", n_leads=2, n_sequences=2)
    working.tell(open_of("e"), lead=1)
    working.step()
    assert list(working.drafter.sequences) == ["a", "b", "e"]


def test_each_lead_tunes_its_own_sequences():
    working = Working(opened="s", n_leads=2)
    working.tell(open_of("u"), Tune(n_ahead=2, min_confidence=0), lead=1)
    working.step(N_AHEAD)
    assert [len(state.main.tokens) for state in working.drafter.sequences.values()] == [N_AHEAD, 2]


def test_another_drafter_takes_its_place():
    working = Working(opened="s")
    other = DrafterHarness().drafter
    working.worker.change_drafter(lambda: other)
    working.tell(open_of("t"))
    working.step()
    assert list(other.sequences) == ["t"]


class ContradictedTarget(FakeTarget):
    """Calls `on_decode` in each decode, as if the lead sent a message. It stops when it is interrupted."""

    def decode(self, spans):
        rows = super().decode(spans)
        self.on_decode()
        if self.interrupt.is_set():
            raise DecodeAbortedError
        return rows


@pytest.mark.parametrize(("tokens", "n_sent"), [([5], 0), ([TEXT[2]], 1)], ids=["rejected", "accepted"])
def test_a_decode_is_stopped_if_the_lead_rejects_what_it_is_about(tokens, n_sent):
    interrupt = threading.Event()
    working = Working(target=ContradictedTarget, interrupt=interrupt)
    working.model.interrupt, working.model.on_decode = interrupt, lambda: None
    working.tell(OPEN.model_copy(update={"sampling": GREEDY}))
    working.step(2)
    working.sent()
    working.model.on_decode = lambda: working.tell(Extend(sequence="s", start=2, tokens=tokens))
    working.step()
    assert len(working.sent()) == n_sent
    working.model.on_decode = lambda: None
    working.step()
    assert [draft.base for _, draft in working.sent()][-1] == 3


def test_the_first_draft_after_a_rejection_says_how_long_it_took():
    working = Working(opened="s")
    working.step(2)
    working.tell(EXTEND)
    working.step(2)
    drafts = [draft for _, draft in working.sent() if draft.base == 3]
    assert [draft.waited_ms for draft in drafts] == [pytest.approx(0.55), None]
    assert [draft.drafted_ms for draft in drafts] == [pytest.approx(1.65), None]


class Recorded:
    def __init__(self):
        self.calls = []

    def rest(self):
        self.calls.append("rest")

    def learn(self, n_tokens, n_right, n_wrong, _now):
        self.calls.append((n_tokens, n_right, n_wrong))


def test_what_became_of_drafts_is_told_until_the_lead_rests():
    worth = Recorded()
    working = Working(opened="s", worth=[worth])
    working.step(3)
    _, draft = working.sent()[-1]
    tokens = [*draft.tokens[:2], draft.tokens[2] + 1]
    working.tell(Extend(sequence="s", start=draft.base, tokens=tokens), CLOSE)
    working.step()
    assert worth.calls == [(3, 2, 1), "rest"]
