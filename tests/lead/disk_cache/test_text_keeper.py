"""The times when texts are written to disk and read from there. A failure costs only the text."""

import copy
import errno
import itertools
import os
import threading
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

from lead.disk_cache.text_files import DamagedTextError, TextFiles
from lead.disk_cache.text_keeper import _WRITING_SECONDS as WRITING_SECONDS
from lead.disk_cache.text_keeper import TextKeeper
from lead.engine.commands import Cancel
from lead.engine.events import Committed, Finished, Started
from lead.engine.loop import Loop
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.text_store import PromptCacheSize
from tests.fake_disk import FakeTextFiles, LateExecutor
from tests.toy_engine import make_engine, make_limits, submit
from tests.toy_model import FakeTarget, plain_run

PROMPT = tuple(range(4, 16)) * 3
OTHER = tuple(range(15, 3, -1)) * 3
SIZE = PromptCacheSize(10_000, 1, n_part=7, n_least_saved=10)
WHOLE = PromptCacheSize(10_000, 1, 10, n_least_saved=10)
MAX_STEPS = 2000


class Calm:
    """A random source with which nothing fails."""

    def random(self):
        return 1.0


class AtOnce(Executor):
    """Runs each call at once, in this thread."""

    def submit(self, do, /, *args):
        done = Future()
        try:
            done.set_result(do(*args))
        except OSError as error:
            done.set_exception(error)
        return done


class Machine:
    """An engine between fakes, and a disk that outlives it. This class is also the pipe."""

    open = True

    def __init__(self, files=None, size=SIZE, traits=PLAIN, n_late=1, executor=None):
        self.files = files or FakeTextFiles(Calm())
        self.now, self.n_asked, self.commands = 0.0, 0, []
        self._size, self._traits, self._n_late, self._executor = size, traits, n_late, executor
        self.start()

    def start(self):
        """Start a new process that has not read anything yet."""
        n_checkpoints = 0 if self._traits.can_trim else 3
        limits = make_limits(prompt_cache=self._size, traits=self._traits, n_checkpoints=n_checkpoints)
        self.engine = make_engine(limits)
        self.target = FakeTarget(2, limits.n_ctx, limits.n_batch, traits=self._traits)
        self.serve(self._executor or LateExecutor(self._n_late))

    def serve(self, late):
        """Serve with the texts on disk, and nothing else."""
        if isinstance(self.files, FakeTextFiles):
            self.files.open_again()
        self.keeper = TextKeeper(self.engine, self.files, self.target, self.clock, lambda *_: late)
        self.loop = Loop(self.target, self.engine, self, clock=self.clock, chores=[self.keeper])

    def clock(self):
        self.now += 0.001
        return self.now

    def drain(self, wait):
        self.wait = wait
        self.now += wait or 0.0
        commands, self.commands = self.commands, []
        return commands

    def send(self, *events):
        self.events += events

    def ask(self, tokens=PROMPT, keep_for="me", max_tokens=8):
        """Return the number of cached tokens of the prompt. The answer's text is checked."""
        self.events, self.n_asked = [], self.n_asked + 1
        request = submit(f"s{self.n_asked}", tokens, max_tokens=max_tokens, keep_for=keep_for)
        self.commands.append(request)
        for _ in range(MAX_STEPS):
            self.loop.step()
            if any(isinstance(event, Finished) for event in self.events):
                break
        answer = [token for event in self.events if isinstance(event, Committed) for token in event.tokens]
        assert [*tokens, *answer] == plain_run(request, 100)[0]
        return next(event.n_cached for event in self.events if isinstance(event, Started))

    def keep(self, *arguments, **more):
        """Ask, then write everything to disk that is to be written."""
        n_cached = self.ask(*arguments, **more)
        self.settle()
        return n_cached

    def settle(self):
        """Run without requests until nothing is left to do."""
        self.wait = 0.0
        for _ in range(MAX_STEPS):
            self.loop.step()
            if self.wait is None:
                return
        raise AssertionError("it is never done")

    def restart(self):
        self.settle()
        self.start()


def text_after(prompt=PROMPT, max_tokens=8):
    return tuple(plain_run(submit("s", prompt, max_tokens=max_tokens), 100)[0])


MEMORIES = pytest.mark.parametrize(
    "memory",
    [
        {},
        {"size": WHOLE, "traits": MemoryTraits(n_rollback=64)},
        {"size": WHOLE, "traits": MemoryTraits(0, n_step_checkpoints=1, equal_lengths=True)},
    ],
    ids=["plain", "windows", "recurrent"],
)


@MEMORIES
@pytest.mark.parametrize("n_late", [0, 30])
def test_after_a_restart_a_conversation_goes_on_where_it_was(memory, n_late):
    machine = Machine(**memory, n_late=n_late)
    assert machine.ask() == 0
    machine.restart()
    text = text_after()
    assert machine.ask((*text, 5, 6)) >= len(text) - 1
    machine.restart()
    assert machine.ask(text_after((*text, 5, 6))) >= len(text) + 2


@MEMORIES
def test_a_longer_text_replaces_what_it_goes_on_from(memory):
    machine = Machine(**memory)
    machine.keep()
    machine.keep((*text_after(), 5, 6))
    assert [text.tokens[: len(PROMPT)] for text in machine.files.texts.values()] == [list(PROMPT)]
    assert len(machine.files.parts) == sum(len(text.parts) for text in machine.files.texts.values())


def test_of_a_text_in_parts_only_what_is_new_is_written():
    machine = Machine()
    machine.keep()
    before = set(machine.files.parts)
    machine.keep((*text_after(), 5, 6))
    assert before < set(machine.files.parts)


def test_without_a_new_text_nothing_is_written_again():
    machine = Machine()
    machine.keep()
    before = dict(machine.files.parts)
    machine.settle()
    machine.restart()
    machine.settle()
    assert machine.files.parts == before


def test_a_text_serves_only_whom_it_was_written_for():
    machine = Machine()
    machine.ask(keep_for="me")
    machine.restart()
    assert machine.ask(keep_for="another") == 0
    machine.restart()
    assert machine.ask(keep_for="me") == len(PROMPT) - 1
    assert {text.owner for text in machine.files.texts.values()} == {"me", "another"}


@pytest.mark.parametrize("other", [None, "another"], ids=["a private request", "another key"])
def test_what_goes_on_from_a_text_for_somebody_else_leaves_it_as_it_was(other):
    machine = Machine()
    machine.keep()
    machine.ask((*text_after(), 5, 6), keep_for=other)
    machine.restart()
    (text,) = (text for text in machine.files.texts.values() if text.owner == "me")
    assert len(text.tokens) < len(text_after())
    assert machine.ask() == len(PROMPT) - 1


@MEMORIES
def test_a_text_that_gives_way_in_memory_comes_back_from_disk(memory):
    size = memory.get("size", SIZE)
    memory = memory | {"size": PromptCacheSize(90, 1, size.state_bytes, size.n_part, n_least_saved=10)}
    machine = Machine(**memory)
    for prompt in (PROMPT, OTHER, tuple(range(4, 16, 2)) * 6):
        machine.keep(prompt)
    n_read, text = machine.files.n_read, text_after()
    assert machine.ask((*text, 5, 6)) >= len(text) - 1
    assert machine.files.n_read > n_read


@pytest.mark.parametrize("error", [DamagedTextError("damaged"), FileNotFoundError("gone"), OSError("broken")])
def test_what_cannot_be_read_is_said_once_and_read_anew(error, caplog):
    machine = Machine()
    machine.ask()
    machine.restart()

    def fail(*_):
        raise error

    machine.files.read = fail
    assert machine.ask() == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert machine.ask() == len(PROMPT) - 1


def test_a_full_disk_is_said_once_and_tried_again_later(caplog):
    machine = Machine()
    write, machine.files.write = machine.files.write, lambda *_: _fail(OSError(errno.ENOSPC, "full"))
    for prompt in (PROMPT, OTHER):
        machine.ask(prompt)
        for _ in range(200):
            machine.loop.step()
            if machine.wait and machine.wait > 100:
                break
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    machine.files.write = write
    machine.settle()
    assert len(machine.files.texts) == 2


def test_a_folder_that_is_gone_is_tried_once_at_the_end(caplog):
    machine, n_tried = Machine(), itertools.count()

    def write(*_):
        next(n_tried)
        raise FileNotFoundError

    machine.files.write = write
    with machine.keeper:
        machine.ask()
    assert next(n_tried) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def _fail(error):
    raise error


def test_a_text_whose_beginning_another_lead_has_deleted_is_written_as_a_whole():
    machine = Machine()
    machine.keep()
    machine.files.parts.clear()
    machine.files.texts.clear()
    machine.keep((*text_after(), 5, 6))
    (text,) = machine.files.texts.values()
    assert set(machine.files.parts) == {part.file for part in text.parts}


def test_a_text_whose_beginning_goes_while_it_is_written_is_written_as_a_whole(caplog):
    machine = Machine(n_late=20)
    machine.keep()
    machine.ask((*text_after(), 5, 6))
    while machine.keeper.seconds_until_due(machine.now) != WRITING_SECONDS:
        machine.loop.step()
    machine.files.parts.clear()
    machine.files.texts.clear()
    machine.keep(OTHER)
    assert len(machine.files.texts) == 2
    assert not caplog.records


def test_a_text_that_is_too_large_for_the_disk_is_left_out():
    machine = Machine()
    machine.files.n_max = 10
    machine.keep()
    assert not machine.files.parts


def test_whoever_waits_for_a_text_may_leave():
    machine = Machine(n_late=50)
    machine.ask()
    machine.restart()
    machine.commands = [submit("leaves", PROMPT, keep_for="me")]
    for _ in range(5):
        machine.loop.step()
    machine.commands = [Cancel(sequence="leaves")]
    machine.settle()
    assert machine.ask() == len(PROMPT) - 1


def test_others_go_on_while_a_text_is_read():
    machine = Machine(n_late=10**6)
    machine.ask()
    with machine.keeper:
        machine._n_late = 60
    machine.start()
    machine.commands = [submit("runs", OTHER, max_tokens=30), submit("waits", PROMPT, keep_for="me")]
    machine.events = []
    for _ in range(40):
        machine.loop.step()
    assert {event.sequence for event in machine.events} == {"runs"}


def test_at_its_end_the_engine_writes_what_it_still_holds():
    machine = Machine()
    with machine.keeper:
        machine.ask()
    machine.start()
    assert machine.ask() == len(PROMPT) - 1


def test_an_engine_that_fails_does_not_wait_for_the_disk():
    machine = Machine()
    machine.ask()
    with pytest.raises(ValueError, match="bug"), machine.keeper:
        raise ValueError("a bug")
    assert not machine.files.texts


def test_what_another_lead_has_written_meanwhile_serves_the_next_request():
    machine = Machine()
    other = Machine(copy.copy(machine.files))  # the same disk
    other.keep()
    assert machine.ask() == len(PROMPT) - 1


def test_with_real_files_and_threads(tmp_path):
    """Real files and threads fit together. `tests.traffic` and tests/real use llama.cpp as well."""
    machine = Machine(TextFiles(tmp_path, "key", 1 << 20))
    machine.keep()
    machine.files = TextFiles(tmp_path, "key", 1 << 20)
    machine.start()
    assert machine.ask() == len(PROMPT) - 1
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]


# A full disk, and a folder that several share


def prompt(n):
    """A prompt. Prompts for different `n` begin differently."""
    return (4 + n, *PROMPT)


class FullDisk(Machine):
    """A disk with room for three texts. Each request comes some seconds after the previous request."""

    def __init__(self, folder, **more):
        super().__init__(TextFiles(folder, "key", 1 << 30), executor=AtOnce(), **more)
        self.keep(prompt(0))
        self.files.n_max = int(3.5 * sum(path.stat().st_size for path in self.files.folder.iterdir()))

    def ask(self, *arguments, **more):
        for path in self.files.folder.glob("*.text"):
            os.utime(path, ns=(path.stat().st_mtime_ns - 10**10,) * 2)
        return super().ask(*arguments, **more)

    def ask_in_turn(self, *numbers):
        """Ask for each prompt, and return their numbers of cached tokens."""
        return [self.keep(prompt(n)) for n in numbers]

    def restart(self):
        self.settle()
        self.files = TextFiles(self.files.folder.parent.parent, "key", self.files.n_max)
        self.start()


def test_what_is_used_from_memory_again_and_again_stays_on_a_full_disk(tmp_path):
    machine = FullDisk(tmp_path)
    machine.ask_in_turn(1, 0, 2, 0, 3, 0, 4, 0)
    machine.restart()
    found = {tuple(text.tokens[: len(PROMPT) + 1]) for text in machine.engine.slots.texts.texts}
    assert found == {prompt(3), prompt(4), prompt(0)}


def test_what_gave_way_on_disk_is_not_waited_for_and_written_again_once_it_is_used(tmp_path, caplog):
    small = PromptCacheSize(100, 1, n_part=7, n_least_saved=10)  # two texts in memory
    machine = FullDisk(tmp_path, size=small)
    assert machine.ask_in_turn(1, 2, 3, 4, 5) == [0] * 5
    assert {text.saved.name for text in machine.engine.slots.texts.texts if text.saved} == {
        path.stem for path in machine.files.folder.glob("*.text")
    }
    assert machine.ask_in_turn(0, 5) == [0, len(PROMPT)]
    machine.restart()
    assert machine.ask_in_turn(0) == [len(PROMPT)]
    assert not caplog.records


def test_more_than_the_disk_has_room_for_is_not_written_in_turns_for_ever(tmp_path):
    machine = FullDisk(tmp_path)
    machine.ask_in_turn(1, 2, 3, 4, 5)
    write, machine.files.write = machine.files.write, lambda *_: _fail(AssertionError("written again"))
    for _ in range(100):
        machine.now += 10.0
        machine.loop.step()
    assert len(machine.engine.slots.texts.texts) == 6
    machine.files.write = write
    machine.ask_in_turn(0)
    machine.restart()
    assert machine.ask_in_turn(0) == [len(PROMPT)]


def test_what_somebody_else_has_deleted_is_not_believed_to_be_there(tmp_path, caplog):
    machine = FullDisk(tmp_path)
    machine.restart()
    for path in machine.files.folder.iterdir():
        path.unlink()
    assert machine.ask_in_turn(0) == [0]
    assert not caplog.records


def test_a_lead_that_is_never_idle_learns_what_another_has_written(tmp_path):
    machine = FullDisk(tmp_path)
    machine.commands = [submit("runs", PROMPT, max_tokens=1500)]
    machine.events = []
    machine.loop.step()
    other = Machine(TextFiles(tmp_path, "key", 1 << 30), executor=AtOnce())
    other.keep(prompt(7))
    while not any(text.tokens[0] == prompt(7)[0] for text in machine.engine.slots.texts.texts):
        assert not machine.engine.idle
        machine.now += 1.0
        machine.loop.step()


def test_what_it_has_written_itself_is_no_reason_to_look_when_somebody_asks(tmp_path, monkeypatch):
    """Looking takes some hundredths of a second if there are thousands of texts."""
    machine = FullDisk(tmp_path)
    monkeypatch.delattr(TextFiles, "_manifests")
    assert machine.ask(prompt(0)) == len(PROMPT)


# Threads and the interpreter's lock


class OneThread(TextFiles):
    priority = None

    def write(self, *arguments):
        self.priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        return super().write(*arguments)


def test_what_writes_does_not_give_way_to_other_programs(tmp_path):
    """On a busy machine it would hold the interpreter's lock for as long as other programs run."""
    machine = Machine(OneThread(tmp_path, "key", 1 << 30))
    machine.keeper = TextKeeper(machine.engine, machine.files, machine.target, machine.clock)
    machine.ask()
    with machine.keeper:
        pass
    assert machine.files.priority == os.getpriority(os.PRIO_PROCESS, 0)


def test_only_the_process_of_embeddings_does():
    """It shares no lock with others. A sequence under a grammar waits for the grammar at each token."""
    root = Path(__file__).parents[3]
    found = {
        path.relative_to(root).as_posix()
        for folder in ("lead", "back", "chat", "shared", "fleet")
        for path in (root / folder).rglob("*.py")
        if any(call in path.read_text() for call in ("setpriority(", "os.nice(", "sched_setscheduler("))
    }
    assert found == {"lead/embeddings/encoder_program.py"}


def test_how_many_texts_were_found_is_said(caplog):
    machine = Machine()
    machine.keep()
    with caplog.at_level("INFO", "engine"):
        machine.start()
    assert "cache on disk: found 1 text in a fake" in caplog.messages
