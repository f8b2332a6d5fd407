import pytest

from lead.engine.drafters.model_drafter import ThreadChoice
from tests.lead.engine.drafters.by_name import ByName
from tests.toy_engine import inline_drafter, submit
from tests.toy_model import GREEDY, plain_run

PROMPT = [0, 2]
TEXT, _ = plain_run(submit(tokens=PROMPT), 100)


def opened(tokens=None, *, n_slots=2, **more):
    """A drafter whose model equals the target, and the committed tokens of `s`, which it reads."""
    drafter, committed = ByName(inline_drafter(n_slots, 0.0, **more)), list(tokens or PROMPT)
    drafter.open("s", GREEDY, committed)
    return drafter, committed


def drafted(drafter, n_rounds):
    for _ in range(n_rounds):
        tokens, _ = drafter.draft(["s"], 1000).drafts["s"]
    return tokens


def test_each_round_adds_a_token():
    drafter, _ = opened()
    assert drafted(drafter, 1) == TEXT[2:3]
    assert drafted(drafter, 3) == TEXT[2:6]


def test_a_round_says_how_many_tokens_were_decoded():
    drafter, _ = opened(TEXT[:9])
    assert drafter.draft(["s"], 1000).n_tokens == 9
    assert drafter.draft(["s"], 1000).n_tokens == 1


def test_a_round_that_begins_a_sequence_says_nothing_about_the_time_of_others():
    """The round may include storing and loading texts."""
    drafter, _ = opened(TEXT[:9])
    drafter.draft(["s"], 1000)
    assert not drafter.on_round(9, 0.01)
    drafter.draft(["s"], 1000)
    assert drafter.on_round(1, 0.01)


def test_a_long_prompt_takes_several_rounds_without_a_draft():
    drafter, _ = opened(TEXT[:9])
    rounds = [drafter.draft(["s"], 4) for _ in range(3)]
    assert [(each.n_tokens, bool(each.drafts)) for each in rounds] == [(4, False), (4, False), (1, True)]


def test_what_was_committed_and_agrees_is_not_decoded_again():
    drafter, committed = opened()
    drafted(drafter, 3)
    committed += TEXT[2:5]
    assert drafter.n_pending("s") == 1
    assert drafted(drafter, 1) == TEXT[5:6]


def test_after_a_rejection_the_draft_begins_again():
    drafter, committed = opened()
    drafted(drafter, 3)
    committed.append((TEXT[2] + 1) % 20)
    assert drafter.n_pending("s") == 1
    assert len(drafted(drafter, 1)) == 1


def test_a_full_draft_cannot_grow():
    drafter, _ = opened(n_max=2)
    drafted(drafter, 2)
    assert drafter.n_pending("s") is None


def test_one_decode_drafts_for_several_sequences():
    drafter, _ = opened()
    drafter.open("t", GREEDY, [5, 1])
    done = drafter.draft(["s", "t"], 1000)
    assert done.drafts.keys() == {"s", "t"}
    assert done.n_tokens == 4


def test_a_sequence_that_is_not_asked_for_does_not_grow():
    drafter, _ = opened()
    drafter.open("t", GREEDY, [5, 1])
    drafter.draft(["s", "t"], 1000)
    assert drafter.draft(["t"], 1000).drafts.keys() == {"t"}
    assert drafted(drafter, 1) == TEXT[2:4]


def test_the_cache_of_an_ended_sequence_serves_the_next_one():
    drafter, committed = opened(TEXT[:9])
    drafted(drafter, 1)
    drafter.leave("s")
    drafter.open("t", GREEDY, committed)
    assert drafter.draft(["t"], 1000).n_tokens == 1


def test_a_sequence_that_waited_for_a_slot_is_begun_anew():
    drafter, committed = opened(n_slots=1)
    drafted(drafter, 1)
    drafter.leave("s")
    drafter.open("t", GREEDY, [5, 1, 4])
    assert drafter.draft(["t"], 1000).drafts.keys() == {"t"}
    drafter.leave("t")
    committed += TEXT[2:4]
    assert drafter.n_pending("s") == 4
    assert drafted(drafter, 1) == TEXT[4:5]


def test_a_sequence_that_the_drafter_gives_up_is_not_asked_for_again(monkeypatch):
    drafter, committed = opened()
    drafted(drafter, 1)
    monkeypatch.setattr("shared.drafting.sequence_state.SequenceState.commit", lambda *_: 1 / 0)
    committed.append(7)
    assert drafter.n_pending("s") is None


# The number of threads


class Machine:
    """The duration of a round is set for each number of threads."""

    def __init__(self, used=1, other=4, **seconds):
        self.seconds = {int(name[1:]): each for name, each in seconds.items()}
        self.threads = used
        self.changes = 0
        self.choice = ThreadChoice(self.use, used, other)

    def use(self, n_threads):
        self.changes += n_threads != self.threads
        self.threads = n_threads

    def draft(self, n_rounds, n_tokens=1):
        """Return for each round whether it was judged typical of the next rounds."""
        return [self.choice.on_round(n_tokens, self.seconds[self.threads]) for _ in range(n_rounds)]


@pytest.mark.parametrize(("one", "four", "best"), [(0.001, 0.002, 1), (0.009, 0.003, 4), (0.0100, 0.0099, 1)])
@pytest.mark.parametrize("used", [1, 4])
def test_whatever_it_began_with_the_faster_number_is_used(one, four, best, used):
    machine = Machine(used=used, other=5 - used, _1=one, _4=four)
    machine.draft(30)
    if best == 1 and one > four:
        best = used  # a hundredth is no reason to change
    assert machine.threads == best


def test_what_became_slower_is_left():
    machine = Machine(_1=0.001, _4=0.002)
    machine.draft(200)
    machine.seconds[1] = 0.005
    machine.draft(500)
    assert machine.threads == 4


def test_trials_that_change_nothing_become_rarer():
    machine = Machine(_1=0.001, _4=0.002)
    machine.draft(10_000)
    assert machine.changes // 2 < 12


def test_what_is_tried_is_not_typical():
    assert Machine(_1=0.001, _4=0.002).draft(30).count(False) == 6


def test_rounds_of_several_tokens_say_nothing():
    machine = Machine(_1=0.001, _4=0.0001)
    assert all(machine.draft(500, n_tokens=2))
    assert machine.threads == 1


def test_a_trial_ends_also_when_other_sequences_join():
    machine = Machine(_1=0.001, _4=0.0001)
    machine.draft(17)
    assert machine.threads == 4
    machine.draft(10, n_tokens=3)
    assert machine.threads == 1
