import pytest

from lead.engine.drafters.thread_choice import ThreadChoice


class Machine:
    """Rounds take as long as a test says, by the number of threads."""

    def __init__(self, used=1, other=4, **seconds):
        self.seconds = {int(name[1:]): each for name, each in seconds.items()}
        self.threads = used
        self.changes = 0
        self.choice = ThreadChoice(self.use, used, other)

    def use(self, n_threads):
        self.changes += n_threads != self.threads
        self.threads = n_threads

    def draft(self, n_rounds, n_tokens=1):
        """What each round was said to be: typical of the next ones, or not."""
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
