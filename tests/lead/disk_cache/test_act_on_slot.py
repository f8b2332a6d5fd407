"""Texts of slots are saved, restored and erased. A failure costs nothing."""

from dataclasses import replace

import pytest

from lead.disk_cache.act_on_slot import ActOnSlot, SlotActed
from lead.disk_cache.text_keeper import SlotActions
from lead.engine.commands import Ask
from lead.engine.events import Answer, Committed
from lead.engine.loop import Loop
from lead.engine.side_jobs import SideJobs
from shared.llama.memory_traits import PLAIN, MemoryTraits
from shared.text_store import NO_PROMPT_CACHE, PromptCacheSize
from tests.lead.disk_cache.test_text_keeper import (
    MAX_STEPS,
    MEMORIES,
    PROMPT,
    SIZE,
    WHOLE,
    Machine,
    text_after,
)
from tests.toy_engine import submit

KEY = "0123456789abcdef01234567"


class SlotMachine(Machine):
    """An engine that saves slots in a folder. The folder outlives it."""

    def __init__(self, folder, key=KEY, **memory):
        self._key, self._path = key, folder / "a"
        super().__init__(**memory)

    def serve(self, late):
        memory = self.target if self._size.n_bytes else None
        jobs = SideJobs(self.send)
        jobs.register(ActOnSlot, SlotActions(self.engine, memory, self._key, executor=lambda *_: late).act)
        self.loop = Loop(self.target, self.engine, self, clock=self.clock, chores=[jobs], on_ask=jobs.begin)

    def act(self, action, slot=0, keep_for="me", path=None):
        """Return the number of tokens, and the number of bytes."""
        answer = self.answer_to(action, slot, keep_for, path)
        assert answer.reason == ""
        return SlotActed.model_validate(answer.reply)

    def refuse(self, action, slot=0):
        """Return the answer, which has to be a refusal."""
        answer = self.answer_to(action, slot)
        assert answer.reason
        return answer

    def answer_to(self, action, slot=0, keep_for="me", path=None):
        self.ask_for(action, slot, keep_for, path)
        self.events = []
        for _ in range(MAX_STEPS):
            self.loop.step()
            if answers := [event for event in self.events if isinstance(event, Answer)]:
                return answers[0]
        raise AssertionError("it is never done")

    def ask_for(self, action, slot=0, keep_for="me", path=None, number=0):
        question = ActOnSlot(action=action, slot=slot, path=path or self._path, keep_for=keep_for)
        fields = question.model_dump(mode="json")
        self.commands.append(Ask(number=number, question="ActOnSlot", fields=fields))


@pytest.fixture
def saved(tmp_path):
    """A machine that has saved its text."""
    machine = SlotMachine(tmp_path)
    machine.ask()
    machine.act("save")
    return machine


@MEMORIES
@pytest.mark.parametrize("n_late", [0, 30])
def test_a_saved_text_goes_on_in_another_process(tmp_path, memory, n_late):
    machine = SlotMachine(tmp_path, n_late=n_late, **memory)
    machine.ask()
    text = text_after()
    saved = machine.act("save")
    assert saved.n_tokens == len(text) - 1
    machine.start()
    restored = machine.act("restore", slot=1)
    assert (restored.n_tokens, restored.n_bytes) == (saved.n_tokens, saved.n_bytes)
    assert machine.ask((*text, 5, 6)) == len(text) - 1


def test_what_had_moved_to_host_memory_is_saved_too(tmp_path):
    machine = SlotMachine(tmp_path, size=replace(SIZE, n_part=0))  # in one move, which pays
    machine.ask()
    machine.commands.append(submit("other", tuple(range(15, 5, -1)), max_tokens=600, slot=1))
    for _ in range(MAX_STEPS):
        machine.loop.step()
        if not machine.target.slots[0]:
            break
    assert not machine.target.slots[0]
    assert machine.act("save").n_tokens == len(text_after()) - 1


def test_a_restored_text_can_be_saved_again(tmp_path, saved):
    saved.start()
    saved.act("restore", slot=1)
    assert saved.act("save", slot=1, path=tmp_path / "b").n_tokens == len(text_after()) - 1
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@MEMORIES
def test_an_erased_text_is_read_again(tmp_path, memory):
    machine = SlotMachine(tmp_path, **memory)
    machine.ask()
    assert machine.act("erase").n_tokens == len(text_after()) - 1
    assert machine.act("erase").n_tokens == 0
    assert machine.ask() == 0


def test_a_text_that_moved_away_is_erased_there(tmp_path):
    machine = SlotMachine(tmp_path)
    machine.ask()
    machine.act("save")  # by way of host memory
    assert machine.engine.slots.texts.texts
    machine.act("erase")
    assert not machine.engine.slots.texts.texts
    assert machine.ask() == 0


@pytest.mark.parametrize("action", ["save", "restore", "erase"])
def test_a_busy_slot_is_left_alone_and_its_answer_goes_on(saved, action):
    saved.events = []
    saved.commands.append(submit("busy", PROMPT, max_tokens=60, slot=0, keep_for="me"))
    while not any(isinstance(event, Committed) for event in saved.events):
        saved.loop.step()
    answer = saved.refuse(action)
    assert answer.may_recover
    assert "slot 0 is busy" in answer.reason
    assert not saved.engine.idle


@pytest.mark.parametrize("action", ["save", "restore", "erase"])
def test_a_slot_that_does_not_exist_is_refused(saved, action):
    assert saved.refuse(action, slot=7).reason == "Invalid slot ID"


def test_an_empty_slot_and_a_private_text_are_not_saved(tmp_path):
    machine = SlotMachine(tmp_path)
    assert "holds no text" in machine.refuse("save").reason
    machine.ask(keep_for=None)
    assert "private" in machine.refuse("save").reason
    assert not list(tmp_path.iterdir())


def test_a_file_of_another_model_changes_nothing(tmp_path):
    SlotMachine(tmp_path, key="another").refuse("save")
    machine = SlotMachine(tmp_path, key="another")
    machine.ask()
    machine.act("save")
    other = SlotMachine(tmp_path)
    other.ask()
    assert "another model" in other.refuse("restore").reason
    assert other.ask() == len(PROMPT) - 1


def test_a_damaged_part_changes_nothing(tmp_path, saved):
    content = bytearray((tmp_path / "a").read_bytes())
    content[-3] ^= 1
    (tmp_path / "a").write_bytes(content)
    n_texts = len(saved.engine.slots.texts.texts)
    assert "damaged" in saved.refuse("restore", slot=1).reason
    assert len(saved.engine.slots.texts.texts) == n_texts
    assert saved.ask() == len(PROMPT) - 1


@pytest.mark.parametrize(
    ("size", "reason"),
    [(NO_PROMPT_CACHE, "cannot keep texts"), (PromptCacheSize(20, 1, n_part=7), "fit into host memory")],
)
@pytest.mark.parametrize("action", ["save", "restore"])
@pytest.mark.usefixtures("saved")
def test_without_room_in_host_memory_it_says_so(tmp_path, size, reason, action):
    small = SlotMachine(tmp_path, size=size)
    small.ask()
    assert reason in small.refuse(action).reason


def test_a_text_too_long_for_the_context_is_refused(tmp_path):
    machine = SlotMachine(tmp_path, size=SIZE, traits=PLAIN)
    machine.ask()
    machine.act("save")
    machine.start()
    machine.engine.slots.n_ctx = 10
    assert "the context has 10" in machine.refuse("restore").reason


def test_others_go_on_while_a_slot_is_saved(tmp_path):
    machine = SlotMachine(tmp_path, n_late=50, traits=MemoryTraits(n_rollback=64), size=WHOLE)
    machine.ask()
    machine.commands.append(submit("other", tuple(range(15, 5, -1)), max_tokens=60, slot=1))
    assert machine.act("save").n_tokens == len(text_after()) - 1
    assert sum(len(event.tokens) for event in machine.events if isinstance(event, Committed)) > 10


def test_one_slot_is_acted_on_at_a_time(tmp_path):
    machine = SlotMachine(tmp_path, n_late=30)
    machine.ask()
    machine.ask_for("save", number=1)
    refusal = machine.refuse("erase", slot=1)
    assert "another slot" in refusal.reason
    assert refusal.may_recover
    while len(machine.events) < 2:
        machine.loop.step()
    assert machine.events[1].number == 1
    assert machine.act("erase").n_tokens == len(text_after()) - 1


def test_what_cannot_be_opened_or_written_is_said(tmp_path):
    machine = SlotMachine(tmp_path)
    machine.ask()
    for action, path, reason in (
        ("restore", tmp_path / "b", "b does not exist"),
        ("restore", tmp_path, "cannot read"),
        ("save", tmp_path / "nowhere" / "b", "cannot write b"),
    ):
        assert reason in machine.answer_to(action, path=path).reason
