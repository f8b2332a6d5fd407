"""A child is started, waited for, killed and given up as it deserves, whatever happens to it and when."""

import os
import random

import pytest

from shared.rate_limit import Backoff
from shared.supervisor import ChildAction, ChildState, Supervisor

KILL, LEAVE, START, STOP = ChildAction.KILL, ChildAction.LEAVE, ChildAction.START, ChildAction.STOP
MOVES = {
    "STARTING": "READY FAILED STOPPED",
    "READY": "RESTARTING SLEEPING FAILED STOPPED",
    "RESTARTING": "READY FAILED STOPPED",
    "SLEEPING": "WAKING FAILED STOPPED",
    "WAKING": "READY RESTARTING FAILED STOPPED",
    "FAILED": "STOPPED",
    "STOPPED": "",
}
LAST = ["heard", "ready", "lost", "ended"]
LEAVING = {"told": LAST, "killed": LAST, "lost": ["died_idle", "ended"]}
REPORTS = {
    ("there", False): ["heard"] * 8 + ["ready", "worked"] * 3 + ["lost", "ended"],
    ("there", True): ["used"],
    **{(each, is_deaf): LEAVING[each] for each in LEAVING for is_deaf in (False, True)},
}
LEADS_TO = {"lost": "lost", "ended": "none"}
UNTIMED = {"heard", "worked", "died_idle", "stop", "fail"}
N_COMMANDS = int(os.environ.get("RANDOM_COMMANDS", "400"))


class Life:
    """Drives a supervisor, and has a process when the supervisor says so."""

    def __init__(self, **options):
        self.now = 1000.0
        self.supervisor = Supervisor(Backoff(0.2, 30.0, random.Random(1), at_once=True), **options)

    @property
    def state(self):
        return self.supervisor.state

    def next(self, seconds=0.0, **options):
        """The action after this many seconds."""
        self.now += seconds
        return self.supervisor.next(self.now, **options)

    def start(self, *, ready=True):
        """Wait until a process is to be started, and start it."""
        self.now = max(self.now, self.supervisor.deadline())
        assert self.next() is START
        if ready:
            self.supervisor.ready(self.now)

    def live(self, seconds=1.0, *, ready=True, worked=False, idle=False):
        """Let the next process live and die; return the delay until the next start."""
        self.start(ready=ready)
        self.now += seconds
        if worked:
            self.supervisor.worked()
        if self.supervisor.lost(self.now) and idle:
            self.supervisor.died_idle()
        self.supervisor.ended(self.now)
        return self.supervisor.deadline() - self.now


@pytest.fixture
def life():
    return Life(max_silence=5.0, sleep_seconds=10.0, max_deaths_at_start=5, max_deaths=10)


def test_each_further_death_delays_the_next_start_more(life):
    delays = [life.live() for _ in range(12)]
    assert delays[0] == 0
    assert 0.1 <= delays[1] <= 0.2
    assert delays[:8] == sorted(delays[:8])
    assert 15 <= delays[-1] <= 30


@pytest.mark.parametrize("how", [{"worked": True}, {"seconds": 60.0}])
def test_a_process_that_has_worked_or_lived_long_is_followed_without_a_delay(life, how):
    for _ in range(4):
        life.live()
    assert life.live(**how) == 0


@pytest.mark.parametrize(("ready", "n"), [(False, 5), (True, 10)])
def test_processes_that_die_with_nothing_to_do_are_given_up(life, ready, n):
    for _ in range(n):
        assert life.state is not ChildState.FAILED
        life.live(ready=ready, idle=True)
    assert (life.state, life.next()) == (ChildState.FAILED, LEAVE)


@pytest.mark.parametrize(("was_ready", "n"), [(False, 5), (True, 10)])
def test_processes_that_die_while_they_load_are_given_up_however_long_that_takes(life, was_ready, n):
    if was_ready:
        life.live()
    for _ in range(n):
        assert life.state is not ChildState.FAILED
        life.live(seconds=600.0, ready=False, idle=True)
    assert life.state is ChildState.FAILED


@pytest.mark.parametrize("how", [{}, {"idle": True, "worked": True}])
def test_processes_that_die_of_their_work_or_have_worked_are_not(life, how):
    for _ in range(100):
        life.live(**how)
    assert life.state is ChildState.RESTARTING


def test_silence_is_counted_in_ticks_of_which_none_pass_while_nobody_looks(life):
    life.start()
    life.supervisor.heard()
    assert [life.next(1000.0, is_busy=True)] + [life.next(0.5, is_busy=True) for _ in range(8)] == [None] * 9
    assert life.next(0.5, is_busy=True) is KILL
    assert life.next(1000.0) is None


def test_the_first_sign_of_life_may_take_a_minute(life):
    life.start(ready=False)
    assert [life.next(0.5) for _ in range(120)].index(KILL) == 119


def test_one_that_nobody_uses_is_ended_and_started_again_when_somebody_does(life):
    for _ in range(3):
        life.live()
    life.start()
    assert (life.next(9.9, is_busy=True), life.next(9.9)) == (None, None)
    assert life.next(0.1) is STOP
    life.supervisor.ended(life.now)
    assert (life.state, life.supervisor.deadline(), life.next()) == (ChildState.SLEEPING, None, None)
    assert life.supervisor.used(life.now)
    assert (life.state, life.next()) == (ChildState.WAKING, START)


class Commands:
    """Random events of a child, in any order and at any time. Each decision is checked."""

    def __init__(self, rng):
        self.rng = rng
        self.life = Life(
            max_silence=rng.choice([0.0, 5.0]),
            sleep_seconds=rng.choice([0.0, 10.0]),
            max_deaths_at_start=rng.choice([3, 1000]),
            max_deaths=rng.choice([3, 1000]),
        )
        self.process = "none"
        self.heard_at = self.used_at = self.life.now
        self.is_over = self.is_deaf = False

    def give(self):
        """Make some reports, and check the action after them."""
        self.life.now += self.rng.choice([0.0, 0.01, 0.5, 1.0, 20.0])
        for _ in range(self.rng.randrange(3)):
            before = self.life.state
            self.report(self.choose())
            self.check_move(before)
        before, is_busy = self.life.state, self.rng.random() < 0.5
        self.check_action(self.life.next(is_busy=is_busy), is_busy=is_busy)
        self.check_move(before)

    def choose(self):
        if self.rng.random() < 0.3:
            return self.rng.choice(["used"] * 20 + ["stop", "fail"])
        return "heard" if self.process == "none" else self.rng.choice(REPORTS[self.process, self.is_deaf])

    def report(self, what):
        now, state, process = self.life.now, self.life.state, self.process
        found = getattr(self.life.supervisor, what)(*([] if what in UNTIMED else [now]))
        self.process = LEADS_TO.get(what, process)
        if what == "lost":
            is_wanted = state not in {ChildState.FAILED, ChildState.STOPPED}
            assert found is (is_wanted and process in {"there", "killed"})
        if what == "heard":
            self.heard_at = now
        if what in {"used", "ready"}:
            self.used_at = now

    def check_move(self, before):
        assert self.life.state is before or self.life.state.name in MOVES[before.name]

    def check_action(self, action, *, is_busy):
        now, state, supervisor = self.life.now, self.life.state, self.life.supervisor
        match action, self.process:
            case ChildAction.START, "none":
                assert state not in {ChildState.SLEEPING, ChildState.FAILED, ChildState.STOPPED}
                assert now >= supervisor.start_at
                self.process, self.is_deaf = "there", self.rng.random() < 0.3
                self.heard_at = self.used_at = now
            case ChildAction.STOP, "there":
                if state is ChildState.SLEEPING:
                    assert not is_busy
                    assert now - self.used_at >= supervisor.sleep_seconds > 0
                self.process = "told"
            case ChildAction.KILL, "there":
                assert now - self.heard_at >= supervisor.max_silence > 0
                self.process = "killed"
            case ChildAction.LEAVE, "none":
                assert state in {ChildState.FAILED, ChildState.STOPPED}
                self.is_over = True
            case None, "none" if state is not ChildState.SLEEPING:
                assert 0 < supervisor.deadline() - now <= 30
            case None, "there":
                assert state not in {ChildState.SLEEPING, ChildState.FAILED, ChildState.STOPPED}
                assert not supervisor.max_silence or supervisor.deadline() <= now + 0.5
                is_idle = state is ChildState.READY and supervisor.sleep_seconds
                assert not is_idle or supervisor.deadline() <= now + supervisor.sleep_seconds
            case action, _:
                assert action is None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_becomes_of_it_there_is_one_when_it_is_needed_and_never_two(seed):
    rng = random.Random(seed)
    commands = Commands(rng)
    for _ in range(N_COMMANDS):
        commands.give()
        if commands.is_over:
            commands = Commands(rng)
