import contextlib
import itertools
import logging

import pytest

from lead.engine.commands import Ask, Cancel, SetBacks, SetPolicy
from lead.engine.events import Committed, DraftsDropped, Finished, Started
from lead.engine.loop import STALL_SECONDS, Loop, ProgressWatch
from lead.engine.speculation.manager import DraftRound
from lead.engine.speculation.policy import SYNC_PATIENCE_S, DraftOrder, Wait
from shared.cache_edits import moved_texts
from shared.errors import DecodeFatalError, IntegrityError, KvCacheFullError, WindowLostError
from shared.protocol import Draft, Tune
from shared.sampling import remote_grammar
from shared.text_store import PromptCacheSize
from tests.toy_engine import FakeFront, inline_drafter, make_engine, make_limits, run_engine, submit
from tests.toy_model import FakeTarget, plain_run

LIMITS = make_limits()
LONG = (0, 2)
"""A prompt whose greedy continuation fills a context of 100 tokens without an end token."""
TEXT, _ = plain_run(submit(tokens=LONG), 100)


class ScriptedPipe:
    """Delivers one batch of commands per step, then is closed. A wait takes all its time."""

    def __init__(self, *batches):
        self._batches = list(batches)
        self.waits = []
        self.sent = []
        self.now = 0.0

    @property
    def open(self):
        return bool(self._batches)

    def drain(self, wait):
        self.waits.append(wait)
        self.now += wait or 0.0
        return self._batches.pop(0)

    def send(self, *events):
        self.sent += events

    def clock(self):
        return self.now


def run(*batches, target=None, policy="fixed", engine=None, **more):
    pipe, target = ScriptedPipe(*batches), target or FakeTarget(LIMITS.n_slots)
    engine = engine or make_engine(LIMITS, policy=policy)
    Loop(target, engine, pipe, clock=pipe.clock, **more).run()
    return pipe, target


class Noted:
    """A chore that is due after these times."""

    def __init__(self, *due):
        self.due, self.turns = list(due), []

    def run_due(self, _now, *, idle):
        self.turns.append(idle)
        return 0.0

    def seconds_until_due(self, _now):
        return self.due.pop(0)


def test_chores_are_done_without_a_request():
    pipe, _ = run([], [], chores=[Noted(7.0, None), Noted(9.0, 8.0)])
    assert pipe.waits == [7.0, 8.0]


def test_they_are_while_others_are_served():
    chore = Noted(None)
    run([submit(tokens=LONG, max_tokens=9)], [], [], chores=[chore])
    assert chore.turns == [False] * 3


def test_who_is_connected_is_passed_on():
    heard = []
    run([SetBacks(names=["a"], share_cores=True)], [SetBacks(names=[])], on_backs=heard.append)
    assert heard == [SetBacks(names=["a"], share_cores=True), SetBacks(names=[])]


def test_questions_are_passed_on_in_their_order_and_change_nothing():
    asked = []
    pipe, target = run([Ask(number=2, question="a"), Ask(number=1, question="b")], [], on_ask=asked.append)
    assert [(ask.number, ask.question) for ask in asked] == [(2, "a"), (1, "b")]
    assert (pipe.sent, target.steps) == ([], [])


def test_with_work_it_only_looks_for_commands():
    pipe, _ = run([submit(tokens=LONG, max_tokens=9)], [], [])
    assert pipe.waits == [None, 0.0, 0.0]


def test_a_request_is_decoded_in_the_step_it_arrives_in():
    pipe, target = run([submit(tokens=[1, 2, 4])])
    assert target.steps == [[3]]
    assert [event.type for event in pipe.sent] == ["started", "committed"]


def test_a_sequence_is_started_before_its_first_decode():
    class Dying(FakeTarget):
        def decode(self, _spans):
            raise DecodeFatalError("gone")

    pipe = ScriptedPipe([submit(tokens=LONG)])
    with pytest.raises(DecodeFatalError):
        Loop(Dying(2), make_engine(LIMITS), pipe).run()
    assert pipe.sent == [Started(sequence="s", n_cached=0)]


def test_a_draft_is_verified_in_the_step_it_arrives_in():
    draft = Draft(sequence="s", source="a", base=3, tokens=TEXT[3:5])
    pipe, target = run([submit(tokens=LONG, max_tokens=4)], [draft])
    assert target.steps == [[2], [3]]
    *_, committed, _finished = pipe.sent
    assert committed == Committed(
        sequence="s", start=3, tokens=TEXT[3:6], n_accepted=2, sources=["a"] * 2, n_right={"a": (2, 0)}
    )


# A device computes while this thread goes on


class Device(FakeTarget):
    """Records what the pipe has sent when a step is launched, and when it is waited for."""

    overlaps = True

    def __init__(self, *batches):
        super().__init__(LIMITS.n_slots)
        self.pipe = ScriptedPipe(*batches)
        self.before, self.during = [], []

    def launch(self, spans):
        self.before.append(len(self.pipe.sent))
        self.pipe.now += 1.0  # a step of so many seconds, whose tokens are not held
        logits = self.decode(spans)

        def wait():
            self.during.append(len(self.pipe.sent))
            return logits

        return wait

    def run(self, policy="fixed"):
        Loop(self, make_engine(LIMITS, policy=policy), self.pipe, clock=self.pipe.clock).run()
        return self.pipe.sent


def test_what_a_step_committed_is_sent_while_the_next_one_is_computed():
    device = Device([submit(tokens=LONG, max_tokens=4)], *[[]] * 7)
    events = device.run()
    assert [event.type for event in events] == ["started", *["committed"] * 4, "finished"]
    assert device.before == [1, 2, 2, 3]
    assert device.during == [1, 2, 3, 4]


def test_a_draft_that_arrives_during_a_step_is_verified_in_the_next_one():
    draft = Draft(sequence="s", source="a", base=3, tokens=TEXT[3:7])
    device = Device([submit(tokens=LONG, max_tokens=9)], [], [], [draft], [], [])
    device.run()
    assert device.steps == [[2], [1], [4]]


def test_commands_that_arrive_during_a_step_are_carried_out_in_their_order():
    late = [submit(sequence="t", tokens=LONG), Draft(sequence="t", source="a", base=2, tokens=TEXT[2:4])]
    device = Device([submit(tokens=LONG, max_tokens=9)], [], [], late, *[[]] * 4)
    device.run()
    (first,) = [each for each in device.pipe.sent if each.type == "committed" and each.sequence == "t"][:1]
    assert first.sources == ["a"] * 2


def test_other_commands_wait_for_the_end_of_the_step():
    device = Device([submit(tokens=LONG, max_tokens=9)], [], [], [Cancel(sequence="s")], [], [])
    device.run()
    assert device.steps == [[2], [1]]
    assert [event.type for event in device.pipe.sent] == ["started", "committed"], "of the last step none"


# Waiting for drafts: `sync` does so wherever it may


def syncing(*batches):
    """Run with the policy "sync". The first batch and the first step are the prompt's."""
    return run([SetBacks(names=["a"]), submit(tokens=LONG, max_tokens=9)], *batches, policy="sync")


def test_a_plan_that_waits_is_not_decoded_until_its_time_is_over():
    pipe, target = syncing([], [])
    assert pipe.waits == [None, 0.0, SYNC_PATIENCE_S]
    assert target.steps == [[2]]


def test_a_wait_in_vain_ends_with_a_step():
    pipe, target = syncing(*[[]] * 6)
    assert target.steps[1:3] == [[1], [1]]
    assert pipe.waits[-2:] == [0.0, 0.0], "a source that said nothing is not waited for again"


def test_a_wait_ends_as_soon_as_the_draft_is_there():
    draft = Draft(sequence="s", source="a", base=3, tokens=TEXT[3:7])
    pipe, target = syncing([], [draft])
    assert target.steps == [[2], [5]]
    assert pipe.sent[-1].n_accepted == 4


def test_cancelling_ends_a_wait():
    pipe, target = syncing([], [Cancel(sequence="s")], [])
    assert pipe.waits[-1] is None
    assert len(target.steps) == 1


def test_a_request_that_arrives_during_a_wait_is_begun_at_once():
    _, target = syncing([], [submit("t", [4] * 5)])
    assert target.steps == [[2], [1, 5]]


def test_the_time_waited_is_counted():
    engine = make_engine(LIMITS, policy="sync")
    run([SetBacks(names=["a"]), submit(tokens=LONG, max_tokens=9)], [], [], engine=engine)
    engine.next(SYNC_PATIENCE_S)
    assert engine.explain()["wait_seconds"] == pytest.approx(SYNC_PATIENCE_S)


def test_after_a_wait_the_next_step_is_not_held_up():
    draft = Draft(sequence="s", source="a", base=3, tokens=[9] * 4)
    pipe, _ = syncing([], [draft], [SetPolicy(policy="off", depth=0)], [])
    assert pipe.waits == [None, 0.0, SYNC_PATIENCE_S, 0.0, 0.0]


# Drafting in the engine


class DraftingPipe(ScriptedPipe):
    """Time passes with every look at the pipe."""

    def clock(self):
        self.now += self.tick
        return self.now


def drafting(*batches, tick):
    """Run with a draft model that equals the target."""
    pipe, target = DraftingPipe(*batches), FakeTarget(LIMITS.n_slots)
    pipe.tick = tick
    inline = inline_drafter(2, 0.0)
    Loop(target, make_engine(LIMITS, depth=3, inline=inline), pipe, clock=pipe.clock).run()
    return pipe, target


def test_before_each_step_it_drafts_what_was_ordered():
    pipe, target = drafting([submit(tokens=LONG, max_tokens=5)], *[[]] * 4, tick=0.0001)
    assert target.steps == [[2], [4]]
    *_, committed, _finished = pipe.sent
    assert committed.n_accepted == 3
    assert set(committed.sources) == {"draft_model"}


def test_commands_are_looked_at_while_it_drafts():
    pipe, target = drafting([submit(tokens=LONG, max_tokens=9)], [], [Cancel(sequence="s")], [], tick=0.002)
    assert target.steps == [[2]]
    assert pipe.waits[1:3] == [0.0, 0.0]


class SlowMemory(FakeTarget):
    """Takes a quarter of a second to store or load a text."""

    def __init__(self, pipe):
        super().__init__(2)
        self._pipe = pipe

    def store(self, slot, snapshot):
        super().store(slot, snapshot)
        self._pipe.now += 0.25

    def restore(self, slot, snapshot, n_keep):
        super().restore(slot, snapshot, n_keep)
        self._pipe.now += 0.25


def test_the_engine_hears_how_long_texts_took_to_move():
    """Three texts follow each other in one slot. The third equals the first."""
    limits = make_limits(1, 200, 200, prompt_cache=PromptCacheSize(500, 1))
    asked = (submit(name, tokens=[n] * 40, max_tokens=1) for name, n in zip("abc", (4, 5, 4), strict=True))
    batches = itertools.chain.from_iterable([[each], [], [], []] for each in asked)
    pipe, engine = ScriptedPipe(*batches), make_engine(limits)
    told, edited = [], engine.edited

    def note(edits, seconds):
        edited(edits, seconds)
        told.append((len(moved_texts(edits)), seconds))

    engine.edited = note
    Loop(SlowMemory(pipe), engine, pipe, clock=pipe.clock).run()
    assert [each for each in told if each[0]] == [(1, 0.25), (2, 0.5)]


# The check of the records


def check_times(*batches):
    """The times when the records are checked while these commands arrive. A wait takes all its time."""
    pipe = ScriptedPipe(*batches)
    engine = make_engine(LIMITS)
    times, check = [], engine.check_integrity

    def check_and_note():
        check()
        times.append(pipe.now)

    engine.check_integrity = check_and_note
    Loop(FakeTarget(2), engine, pipe, clock=pipe.clock).run()
    return times, pipe.waits


def test_the_records_are_checked_once_when_the_engine_has_become_idle():
    times, waits = check_times([submit(max_tokens=1)], [], [])
    assert times == [0.0]
    assert waits == [None, None, None]


def test_while_a_sequence_runs_the_records_are_not_checked():
    times, _ = check_times([submit(tokens=LONG)], *[[]] * 9)
    assert times == []


def test_the_records_are_checked_at_most_once_a_second():
    times, _ = check_times(*[[submit(f"s{i}", max_tokens=1)] for i in range(9)], [], [])
    assert times == pytest.approx([0.0, 1.0, 2.0, 3.0, 4.0])


def test_a_check_that_is_not_due_yet_follows_without_a_command():
    first, second = [submit(max_tokens=1)], [submit("t", max_tokens=1)]
    times, waits = check_times(first, second, [], [], [])
    assert times == pytest.approx([0.0, 1.0])
    assert waits == [None, None, 1.0, None, None]


def test_wrong_records_end_the_engine_and_are_logged(caplog):
    pipe = ScriptedPipe([submit(max_tokens=1)], [], [])
    engine = make_engine(LIMITS)
    engine.slots._release = lambda _slot: None  # it forgets to forget
    with pytest.raises(IntegrityError, match="has ended"):
        Loop(FakeTarget(2), engine, pipe, clock=pipe.clock).run()
    assert "'sequence': 's', 'n_tokens': 3, 'n_context': 3, 'drafts': []" in caplog.text
    assert "'n_cached': 2" in caplog.text


# What the front may ask for at any time


def test_the_policy_is_changed_in_the_step_its_command_arrives_in():
    draft = Draft(sequence="s", source="a", base=3, tokens=TEXT[3:6])
    pipe, target = run([submit(tokens=LONG, max_tokens=9)], [draft, SetPolicy(policy="off", depth=0)])
    assert target.steps == [[2], [1]]
    assert Tune(n_ahead=0, min_confidence=0.0) in pipe.sent


def test_stale_drafts_are_reported():
    drafts = [Draft(sequence=name, source="a", base=77, tokens=[1]) for name in ("s", "ended")]
    pipe, _ = run([submit(tokens=LONG, max_tokens=9)], drafts)
    assert pipe.sent[-1] == DraftsDropped(source="a", n_stale=2)


class Full(FakeTarget):
    """Has room for only `n_real` tokens, whatever the scheduler expects."""

    def __init__(self, *args, n_real, **kwargs):
        super().__init__(*args, **kwargs)
        self._n_real = n_real

    def decode(self, spans):
        if sum(map(len, self.slots)) + sum(len(span.tokens) for span in spans) > self._n_real:
            raise KvCacheFullError("no room")
        return super().decode(spans)


def run_full(n_real, script):
    front = FakeFront(script)
    run_engine(front, LIMITS, make_target=lambda *args, **more: Full(*args, n_real=n_real, **more))
    return front


def test_a_cache_smaller_than_promised_ends_only_the_text_that_is_too_long_for_it():
    long, short = submit("long", [1, 4]), submit("short", [5], max_tokens=9)
    text, _ = plain_run(long, 100)
    assert len(text) > 40
    front = run_full(40, {0: [long, short]})
    assert front.reasons == {"long": "length", "short": plain_run(short, 100)[1]}
    assert front.texts == {"long": text[:41], "short": plain_run(short, 100)[0]}


def test_sequences_that_fit_one_after_the_other_all_get_their_whole_text():
    requests = [submit(f"s{i}", [i, 6] * 6, max_tokens=12) for i in range(5)]
    front = run_full(26, {0: requests})
    assert front.texts == {request.sequence: plain_run(request, 100)[0] for request in requests}
    started = [event for event in front.of(Started) if not event.again]
    assert len(started) == len(front.of(Finished)) == 5


class Losing(FakeTarget):
    """Finds once that a slot has lost its window, and demands that the text is read again."""

    lost = None

    def trim(self, slot, n_keep):
        super().trim(slot, n_keep)
        if (slot, n_keep) == (self.lost, 0):
            self.lost = -1

    def decode(self, spans):
        if len(self.steps) == 7 and self.lost is None:
            self.lost = spans[0].slot
        if self.lost in {span.slot for span in spans}:
            raise WindowLostError([self.lost])
        return super().decode(spans)


def test_a_text_whose_window_was_lost_is_read_again_and_stays_the_same(caplog):
    requests = [submit(f"s{i}", [i, 6] * 6, max_tokens=12) for i in range(3)]
    front = FakeFront({0: requests})
    with caplog.at_level(logging.WARNING, "engine"):
        target = run_engine(front, LIMITS, make_target=Losing)
    assert front.texts == {request.sequence: plain_run(request, 100)[0] for request in requests}
    assert target.lost == -1
    (message,) = [record.message for record in caplog.records]
    assert message.endswith("were overwritten: the engine processes these texts again (lost so far: 1)")


class StuckEngine:
    """Has a sequence and never works on it, as with a bug."""

    idle = False

    def __init__(self, action=None, n_drafted=0):
        self._action = action or Wait(0.0)
        self._n_drafted = n_drafted

    def next(self, _now):
        return self._action

    def draft(self, _order):
        return DraftRound(self._n_drafted, 0, None)

    def drafted(self, _done, _seconds):
        pass

    def pop_events(self):
        return []

    pop_edits = pop_events

    class slots:  # noqa: N801 - an attribute
        @staticmethod
        def describe():
            return {"waiting": ["s"]}


@pytest.mark.parametrize("seconds", [0.001, 0.5])
def test_a_loop_that_does_nothing_for_those_who_wait_ends_the_engine(caplog, seconds):
    """The loop may spin or wait, and may give signs of life."""
    pipe = ScriptedPipe(*[[]] * 40_000)
    clock = itertools.count(0.0, seconds).__next__
    with pytest.raises(IntegrityError, match="the engine has made no progress"):
        Loop(FakeTarget(), StuckEngine(), pipe, clock=clock).run()
    assert clock() <= 31
    assert "['s']" in caplog.messages[-1], "its records are in the log"


@pytest.mark.parametrize(("n_tokens", "ends"), [(512, False), (0, True)])
def test_a_draft_model_may_read_a_long_prompt_between_two_steps(n_tokens, ends):
    order = DraftOrder(("s",), 1, 0.0)
    clock = itertools.count(0.0, 0.5).__next__
    loop = Loop(FakeTarget(), StuckEngine(order, n_tokens), ScriptedPipe(*[[]] * 100), clock=clock)
    with pytest.raises(IntegrityError) if ends else contextlib.nullcontext():
        loop.run()


def test_whatever_happens_begins_the_time_anew():
    progress = ProgressWatch(now=0.0)
    for now in range(100):
        assert not progress.has_stalled(float(now))
        if now % 20 == 0:
            progress.reset()


def test_the_time_for_which_a_process_was_stopped_does_not_count():
    progress = ProgressWatch(now=0.0)
    assert not progress.has_stalled(3600.0)


def test_a_grammar_without_a_process_is_given_up_before_the_engine():
    assert remote_grammar._PATIENCE_SECONDS < 0.75 * STALL_SECONDS
