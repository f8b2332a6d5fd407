import threading

import pytest

from shared.errors import DecodeAbortedError
from shared.protocol import Close, Extend, Open
from tests.shared.drafting.drafting import LONG, TEXT, DrafterHarness
from tests.shared.drafting.test_side_branches import WARM, chosen
from tests.toy_model import GREEDY, N_VOCAB, FakeTarget

N_LONG = len(LONG)
WRONG = (TEXT[3] + 1) % N_VOCAB


class InterruptedTarget(FakeTarget):
    """Raises DecodeAbortedError when it is interrupted, with the tokens already in the cache."""

    interrupt: threading.Event

    def decode(self, spans):
        rows = super().decode(spans)
        if self.interrupt.is_set():
            self.steps.pop()
            raise DecodeAbortedError("interrupted")
        return rows


def interruptible(**options):
    """A harness that has drafted TEXT[2:4], and is about to draft the next token."""
    interrupt = threading.Event()
    harness = DrafterHarness(target=InterruptedTarget, interrupt=interrupt, **options)
    harness.model.interrupt = interrupt
    harness.open()
    harness.step()
    harness.step()
    harness.drafter.begin()
    return harness


def extend(tokens, sequence="s", start=N_LONG):
    return Extend(sequence=sequence, start=start, tokens=tokens)


@pytest.mark.parametrize("tokens", [[WRONG], [TEXT[2], WRONG], [TEXT[2], WRONG, 4, 4]])
def test_a_decode_after_tokens_that_were_rejected_is_stopped(tokens):
    assert interruptible().drafter.interrupt(extend(tokens))


def test_tokens_that_are_known_count_once():
    assert interruptible().drafter.interrupt(extend([*LONG, TEXT[2], WRONG], start=0))


@pytest.mark.parametrize(
    "message",
    [
        extend(TEXT[2:3]),
        extend(TEXT[2:4]),
        extend([*TEXT[2:4], WRONG, 5]),
        extend([WRONG], sequence="t"),
        extend([WRONG], start=9),
        Close(sequence="s", reason="ended"),
        Open(sequence="t", sampling=GREEDY, tokens=[4]),
    ],
    ids=["accepted", "all-accepted", "beyond", "another-sequence", "beyond-what-is-known", "close", "open"],
)
def test_a_decode_that_may_be_of_use_goes_on(message):
    harness = interruptible()
    assert not harness.drafter.interrupt(message)
    assert [state.id for state in harness.drafter.finish()] == ["s"]


def test_a_lead_cannot_stop_what_is_drafted_for_another():
    assert not interruptible().drafter.interrupt(extend([WRONG]), 1)


def test_nothing_is_stopped_between_decodes():
    harness = interruptible()
    harness.drafter.finish()
    assert not harness.drafter.interrupt(extend([WRONG]))


def test_a_decode_that_reads_a_prompt_goes_on():
    harness = interruptible()
    harness.drafter.finish()
    harness.extend(len(LONG), [WRONG, 5, 6])
    harness.drafter.begin()
    assert not harness.drafter.interrupt(extend([1], start=len(LONG) + 3))


def test_a_decode_that_drafts_for_another_sequence_as_well_goes_on():
    harness = interruptible()
    harness.drafter.finish()
    harness.open("t")
    harness.step()
    harness.drafter.begin()
    assert not harness.drafter.interrupt(extend([WRONG]))


def test_a_decode_of_the_branch_that_was_right_goes_on():
    harness = interruptible(n_branches=1, n_ahead=6)
    harness.drafter.finish()
    harness.close()
    harness.open(sampling=WARM)
    harness.step()
    harness.step()
    harness.drafter.begin()
    state = harness.drafter.sequences["s"]
    ((start, first),) = state.branches
    assert not harness.drafter.interrupt(extend([*state.main.tokens[: start - len(LONG)], first]))
    other = (first + 1) % N_VOCAB
    assert other != state.main.tokens[start - len(LONG)]
    assert harness.drafter.interrupt(extend([*state.main.tokens[: start - len(LONG)], other]))


def test_after_a_stop_the_draft_is_the_right_one_and_no_time_is_learned():
    harness = interruptible()
    harness.drafter.interrupt(extend([WRONG]))
    assert harness.drafter.finish() == []
    assert not harness.drafter.n_decoded
    harness.drafter.check_integrity()
    harness.extend(len(LONG), [WRONG])
    assert harness.last_draft().tokens == chosen([*LONG, WRONG], GREEDY, 4)


def test_a_model_without_interrupt_is_not_stopped():
    harness = DrafterHarness()
    harness.open()
    harness.step()
    harness.drafter.begin()
    assert not harness.drafter.interrupt(extend([WRONG]))
