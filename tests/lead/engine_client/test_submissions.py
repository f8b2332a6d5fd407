import pytest

from lead.engine.events import Committed, Finished, PromptProgress, Started
from lead.engine_client.sequences import Sequences
from shared.errors import UnavailableError
from shared.sampling.parameters import SamplingParameters
from tests.toy_engine import submit

SAMPLING = SamplingParameters(
    seed=7, repeat_penalty=1.2, dry_multiplier=0.8, grammar='start: "a"', grammar_start=2
)
PROMPT = [1, 2]
SETTLED = 16


class Front:
    """Sequences without an engine. `now` advances with each event."""

    def __init__(self, max_restarts=3):
        self.now = 0.0
        self.sequences = Sequences(lambda: self.now, max_restarts=max_restarts)

    def create(self, **fields):
        self.now += 1
        return self.sequences.create(submit(tokens=PROMPT, **fields))

    def started(self, **fields):
        """A sequence that the engine process has given a slot."""
        sequence = self.create(**fields)
        self.sequences.take_due()
        self.start(sequence)
        return sequence

    def start(self, *sequences, again=False):
        for sequence in sequences:
            self.tell(Started(sequence=sequence.id, n_cached=1, again=again))

    def commit(self, sequence, n=1):
        tokens = list(range(100, 100 + n))
        self.tell(Committed(sequence=sequence.id, start=len(sequence.tokens), tokens=tokens))

    def tell(self, event):
        self.now += 1
        self.sequences.apply(event, self.now)

    def due(self):
        return [submission.sequence for submission in self.sequences.take_due()]

    def give_until(self, last):
        """Give the sequences that are due to the engine process until `last` starts; returns the others."""
        for _ in range(20):
            given = [self.sequences.get(each) for each in self.due()]
            self.start(*given, again=True)
            if last in given or last.ended:
                return
            yield from given

    def die(self, n=1):
        """Let the engine process die `n` times, each time in the first step of all that it was given."""
        for _ in range(n):
            self.due()
            self.start(*[each for each in self.sequences if each.started_at is not None], again=True)
            self.sequences.on_death()


@pytest.fixture
def front():
    return Front()


def test_a_running_sequence_is_submitted_again_with_all_that_it_is(front):
    sequence = front.started(sampling=SAMPLING, max_tokens=9, prediction=[5, 6], n_keep=4, slot=1)
    front.commit(sequence, 3)
    front.sequences.on_death()
    (submission,) = front.sequences.take_due()
    begun = {"tokens": [1, 2, 100, 101, 102], "n_prompt": 2, "n_cached": 1}
    assert submission == sequence.request.model_copy(update=begun)


def test_a_queued_sequence_is_submitted_again_as_if_for_the_first_time(front):
    sequence = front.create()
    (before,) = front.sequences.take_due()
    front.sequences.on_death()
    assert front.sequences.take_due() == [before]
    assert before.n_cached is None
    assert sequence.is_waiting


def test_running_ones_come_first_in_the_order_in_which_they_started(front):
    queued, late, early = front.create(), front.create(), front.create()
    front.due()
    front.start(early, late)
    front.sequences.on_death()
    new = front.create()
    assert front.due() == [early.id, late.id, queued.id, new.id]


def test_one_that_ended_while_there_was_no_engine_is_not_submitted_again(front):
    gone, stays = front.started(), front.started()
    front.sequences.on_death()
    front.sequences.discard(gone)
    assert front.due() == [stays.id]


def test_no_slot_outlives_its_engine_process(front):
    sequence = front.started()
    front.sequences.on_death()
    assert sequence.slot is None


def test_its_first_start_counts_for_the_statistics(front):
    sequence = front.started()
    started_at = sequence.started_at
    front.die()
    front.due()
    front.tell(Started(sequence=sequence.id, n_cached=0, slot=2, again=True))
    assert (sequence.started_at, sequence.n_cached, sequence.slot) == (started_at, 1, 2)


def test_progress_through_a_prompt_is_not_reported_twice(front):
    sequence = front.started()

    def read(*counts):
        for n in counts:
            front.tell(PromptProgress(sequence=sequence.id, n_processed=n, n_total=9, n_cached=1))

    read(1, 5)
    front.die()
    read(2, 4, 5, 6, 9)
    assert [event.n_processed for event in sequence.progress] == [1, 5, 6, 9]


@pytest.mark.parametrize("max_restarts", [0, 1, 3])
def test_a_sequence_fails_when_the_engine_has_died_too_often(max_restarts):
    front = Front(max_restarts)
    sequence = front.started()
    front.die(max_restarts)
    assert not sequence.ended
    front.die()
    assert isinstance(sequence.failure, UnavailableError)
    assert f"deaths: {max_restarts + 1}" in str(sequence.failure)


def test_a_sequence_that_kills_every_engine_takes_no_other_with_it(front):
    """Any sequence may have caused two deaths. After that, the sequences that saw both run one at a time."""
    others = [front.started(), front.started()]
    killer = front.started()
    others.append(front.started())
    for _ in range(4):
        front.sequences.on_death()
        for sequence in front.give_until(killer):
            front.commit(sequence, SETTLED)
    assert killer.ended
    assert not any(sequence.ended for sequence in others)


def test_suspects_come_one_at_a_time_and_before_all_others(front):
    first, second = front.started(), front.started()
    front.die(2)
    new = front.create()
    assert front.due() == [first.id]
    assert front.sequences.holds_back
    front.start(first, again=True)
    front.commit(first, SETTLED - 1)
    assert front.due() == []
    front.commit(first)
    assert front.due() == [second.id]
    front.tell(Finished(sequence=second.id, reason="stop"))
    assert front.due() == [new.id]
    assert not front.sequences.holds_back


def test_a_death_does_not_count_against_those_that_have_long_been_running(front):
    old = front.started()
    front.commit(old, SETTLED)
    young = front.started()
    assert front.sequences.on_death()
    front.due()
    front.start(old, young, again=True)
    front.commit(old, SETTLED)
    for _ in range(3):
        front.sequences.on_death()
        for sequence in (old, young):
            front.due()
            front.start(sequence, again=True)
            front.commit(old, SETTLED)
    assert (old.ended, young.ended) == (False, True)


def test_a_death_of_an_idle_engine_counts_against_no_sequence(front):
    assert not front.sequences.on_death()
    sequence = front.create()
    for _ in range(10):
        assert not front.sequences.on_death()
    assert not sequence.ended


def test_a_queued_sequence_is_blamed_only_if_none_ran(front):
    running, queued = front.create(), front.create()
    for _ in range(4):
        front.due()
        front.start(running, again=running.started_at is not None)
        front.sequences.on_death()
    assert (running.ended, queued.ended) == (True, False)
    for _ in range(4):
        front.due()
        front.sequences.on_death()
    assert queued.ended


def test_deaths_and_resumed_sequences_are_counted(front):
    front.started()
    front.create()
    front.due()
    front.sequences.on_death()
    assert (front.sequences.n_deaths, front.sequences.n_resumed) == (1, 1)
