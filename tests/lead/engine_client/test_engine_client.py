"""The engine client passes on the engine's events, and survives any end of the engine.

The engine here is a script that is run in place of `python -m lead.engine`.
"""

import asyncio
import contextlib
import errno
import itertools
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from lead.disk_cache.act_on_slot import ActOnSlot, SlotActed
from lead.engine.commands import Ask, Cancel, SetBacks, SetPolicy, Submit
from lead.engine.events import Exactness, Finished, encode_line
from lead.engine.explain import Explain, Explained
from lead.engine.load import Load
from lead.engine_client import engine_client as module
from lead.engine_client.engine_client import EngineClient
from lead.engine_client.engine_state import EngineState
from lead.engine_client.sequences import Sequences
from shared import keeper
from shared.descriptors import n_open
from shared.errors import (
    EngineError,
    ModelLoadError,
    NotServingError,
    QueueFullError,
    RequestError,
    UnavailableError,
)
from shared.protocol import Draft
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions

LOAD = Load(model=Path("m.gguf"), options=ModelOptions(), depth=4)
SCRIPT = """#!{python}
import os, signal, socket, sys
from pathlib import Path

pipe = socket.socket(fileno=int(sys.argv[6]))
commands = pipe.makefile()
notes = Path({notes!r})
load = commands.readline()

def say(text):
    pipe.sendall(text.encode())

def ready():
    sizes = '"n_ctx": 64, "n_ctx_sequence": 64, "n_slots": 1'
    about = f'{{{{"type": "ready", {{sizes}}, "speculates": true, "exactness": {{{{"cost": 1.5}}}}}}}}\\n'
    say(about + '{{"type": "finished", "sequence": "up", "reason": "stop"}}\\n')

def first_time():
    first = not notes.exists()
    notes.touch()
    return first

{body}
"""
LISTEN = "for line in commands: notes.open('a').write(line)\n"
UP = Finished(sequence="up", reason="stop")


class Front(Sequences):
    """The owner of a client, with its sequences. It records all events."""

    def __init__(self, timeout=0.0, sleep_seconds=0.0, *, is_open=True, max_queue=None):
        super().__init__(max_restarts=9)
        clock = itertools.count(1.0, 0.01).__next__ if sleep_seconds else time.monotonic
        self.client = EngineClient(
            LOAD,
            self,
            "info",
            share_grammars=lambda: 2,
            max_queue=max_queue,
            timeout=timeout,
            sleep_seconds=sleep_seconds,
            on_sleep=self.on_sleep,
            clock=clock,
        )
        self.n_slept = 0
        self.events = []
        self.lost = []
        self.processes = []
        self.was_busy = True
        self._news = asyncio.Event()
        self.backs = asyncio.get_running_loop().create_future()
        if is_open:
            self.backs.set_result(self)
        self.running = asyncio.ensure_future(self.client.run(self.backs))

    @property
    def pid(self):
        process = self.client._keeper.child
        return process.pid if process else None

    async def on_sleep(self):
        self.n_slept += 1
        self._news.set()

    def apply(self, event, now):
        assert now >= 1.0
        self.processes.append(self.pid)
        self.events.append(event)
        super().apply(event, now)
        self._news.set()

    def fail_all(self, reason):
        self.lost.append(reason)
        super().fail_all(reason)

    def on_death(self):
        self.lost.append(self.client.state)
        self._news.set()
        return super().on_death() or self.was_busy

    async def until(self, enough):
        """Wait for events until `enough` is true."""
        async with asyncio.timeout(60):
            while not enough(self):
                self._news.clear()
                await self._news.wait()

    async def stop(self):
        async with asyncio.timeout(60):
            self.client.stop()
            with contextlib.suppress(ModelLoadError, EngineError):
                await self.running


def is_up(front):
    return UP in front.events


@pytest.fixture
async def start(tmp_path, monkeypatch):
    """Starts a front whose engine runs `body` after it has read the Load command."""
    path = tmp_path / "engine"
    python = sys.executable
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setattr("shared.supervisor._FIRST_DELAY", 0.001)
    fronts = []

    def start(body, timeout=0.0, **options):
        path.write_text(SCRIPT.format(python=python, notes=str(tmp_path / "notes"), body=body))
        path.chmod(0o700)
        fronts.append(Front(timeout, **options))
        return fronts[-1]

    yield start
    for front in fronts:
        await front.stop()


async def up(start, body="ready()\n" + LISTEN, **options):
    front = start(body, **options)
    await front.until(is_up)
    return front


def submission():
    return Submit(sequence="s", tokens=[1], sampling=SamplingParameters(seed=0), max_tokens=None)


async def test_an_engine_that_says_so_is_ready(start):
    front = start("ready()\n" + LISTEN)
    assert front.client.state is EngineState.STARTING
    await front.until(is_up)
    assert (front.client.state, front.client.ready.n_ctx) == (EngineState.READY, 64)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EAGAIN])
async def test_an_engine_that_the_system_cannot_start_is_tried_again(start, monkeypatch, number):
    socketpair, refusals = socket.socketpair, [OSError(number, os.strerror(number))]

    def refuse_once():
        if refusals:
            raise refusals.pop()
        return socketpair()

    monkeypatch.setattr(keeper.socket, "socketpair", refuse_once)
    front = await up(start)
    assert front.client.state is EngineState.READY


async def test_commands_reach_the_engine_in_order(start, tmp_path):
    front = await up(start)
    sequence = front.client.submit(submission())
    draft = Draft(sequence=sequence.id, source="desk", base=1, tokens=[2])
    front.client.post_draft(draft)
    front.client.cancel(sequence)
    await front.stop()
    commands = sequence.submission(), draft, Cancel(sequence=sequence.id)
    assert (tmp_path / "notes").read_bytes() == b"".join(encode_line(command) for command in commands)


async def test_nothing_is_submitted_to_an_engine_that_is_not_ready(start):
    front = start(LISTEN)
    with pytest.raises(UnavailableError, match="is loading"):
        front.client.submit(submission())
    assert not len(front)
    front.client.cancel(front.create(submission()))
    front.client.post_draft(Draft(sequence="s", source="desk", base=1, tokens=[2]))


@pytest.mark.parametrize("max_queue", [0, 2])
async def test_a_request_beyond_the_queue_is_refused_but_the_slots_are_filled(start, max_queue):
    front = await up(start, max_queue=max_queue)
    for _ in range(max_queue + 1):
        front.client.submit(submission())
    with pytest.raises(QueueFullError, match=f"{max_queue} requests wait"):
        front.client.submit(submission())


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_model_that_cannot_be_loaded_ends_the_first_start(start, is_open):
    body = """say('{"type": "load_failed", "reason": "m.gguf is not there"}\\n'); sys.exit(1)"""
    front = start(body, is_open=is_open)
    with pytest.raises(ModelLoadError, match=r"m\.gguf is not there"):
        await front.running
    assert front.client.state is EngineState.FAILED


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "sys.exit(3)",
        """say('{"type": "fini'); os.kill(os.getpid(), signal.SIGKILL)""",
    ],
    ids=["killed", "exited", "killed in the middle of an event"],
)
async def test_an_engine_that_ends_is_started_again(start, end):
    front = start(f"if first_time():\n    ready(); {end}\nready()\n" + LISTEN)
    await front.until(lambda front: front.events == [UP, UP])
    assert front.lost == [EngineState.RESTARTING]
    assert front.client.state is EngineState.READY


@pytest.mark.parametrize("is_open", [True, False])
async def test_engines_that_die_before_any_is_ready_end_the_start_with_the_reason(start, is_open):
    front = start("sys.exit(3)\n", is_open=is_open)
    front.was_busy = False
    with pytest.raises(ModelLoadError, match=r"died 5 times before it was ready"):
        await front.running
    assert front.client.state is EngineState.FAILED


async def test_engines_that_die_idle_one_after_the_other_end_the_lead(start, monkeypatch):
    monkeypatch.setattr("shared.supervisor.MAX_DEATHS", 3)
    front = start("ready()\n")
    front.was_busy = False
    with pytest.raises(EngineError, match="while idle"):
        await front.running
    assert (front.client.state, front.lost[-1]) == (
        EngineState.FAILED,
        "the engine cannot start. Read the lead's log",
    )


async def test_an_engine_that_is_ready_is_given_what_waits_for_it(start, tmp_path):
    front = start("if first_time():\n    ready(); sys.exit(3)\nready()\n" + LISTEN)
    await front.until(lambda front: front.lost)
    sequence = front.client.submit(submission())
    await front.until(lambda front: front.events == [UP, UP])
    await front.stop()
    assert (tmp_path / "notes").read_bytes() == encode_line(sequence.submission())


async def test_what_is_held_back_is_asked_for_after_each_event(start, tmp_path):
    finished = """{"type": "finished", "reason": "stop", "sequence": "%s"}\n"""
    front = start(f"import json\nready()\n{LISTEN[:-1]}; say({finished!r} % json.loads(line)['sequence'])")
    suspect, other = (front.create(submission()) for _ in range(2))
    suspect.n_deaths = 2
    await front.until(lambda front: not len(front))
    await front.stop()
    submitted = encode_line(suspect.submission()) + encode_line(other.submission())
    assert (tmp_path / "notes").read_bytes() == submitted


async def test_an_engine_that_hangs_is_killed_and_started_again(start, caplog):
    body = "if first_time():\n    ready(); os.kill(os.getpid(), signal.SIGSTOP)\nready()\n" + LISTEN
    front = start(body, timeout=0.5)
    await front.until(lambda front: front.events == [UP, UP])
    assert "no progress for 0.5 s (--engine-timeout)" in caplog.text


async def test_an_engine_that_nobody_listens_to_yet_is_not_taken_for_hung(start, tmp_path, monkeypatch):
    monkeypatch.setattr("shared.supervisor._START_SECONDS", 0.02)
    monkeypatch.setattr("shared.supervisor._TICKS", 2)
    body = """first_time()\nready()\nwhile True:\n    say('{"type": "alive"}\\n')"""
    front = start(body, timeout=0.02, is_open=False)
    while not (tmp_path / "notes").exists():  # noqa: ASYNC110 - it has no event for this
        await asyncio.sleep(0.01)
    front.backs.set_result(front)
    await front.until(is_up)
    assert front.lost == []


async def test_an_engine_that_is_started_again_computes_as_the_first_one_did(start):
    say_load = SAY_LOAD.replace('"policy", "depth"', '"exactness",')
    front = start(
        say_load + "if first_time():\n    say_load(); ready(); sys.exit(3)\nsay_load(); ready()\n" + LISTEN
    )
    await front.until(lambda front: front.events.count(UP) == 2)
    said = [event.sequence for event in front.events if event != UP]
    found = Exactness(cost=1.5).model_dump()
    assert said == ['{"exactness": null}', json.dumps({"exactness": found})]


async def test_the_engine_is_told_how_often_to_give_a_sign_of_life(start):
    say_load = SAY_LOAD.replace('"policy", "depth"', '"heartbeat_seconds",')
    front = await up(start, say_load + "say_load(); ready()\n" + LISTEN, timeout=20.0)
    assert front.events[0].sequence == '{"heartbeat_seconds": 2.0}'


async def test_a_question_between_an_engines_death_and_its_end_gets_no_answer_and_the_next_gets_one(
    start, monkeypatch
):
    """The process has closed its pipe, but has not ended. The client must not wait for an answer."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 1000.0)
    front = start(
        "if first_time():\n    ready(); pipe.shutdown(2); signal.sigwait([signal.SIGTERM])\n" + ANSWERS
    )
    await front.until(lambda front: front.lost)
    pid = front.processes[0]
    async with asyncio.timeout(60):
        with pytest.raises(NotServingError, match="died"):
            await front.client.ask(Explain())
    os.kill(pid, signal.SIGTERM)
    await front.until(lambda front: front.events == [UP, UP])
    assert await front.client.ask(Explain()) == REPORT


async def test_a_model_that_is_gone_at_the_second_start_is_tried_again(start):
    front = start(
        "if first_time():\n    ready(); sys.exit(3)\n"
        "if not notes.read_text():\n    notes.write_text('x')\n"
        """    say('{"type": "load_failed", "reason": "gone"}\\n'); sys.exit(1)\n"""
        "ready()\n" + LISTEN
    )
    await front.until(lambda front: front.events == [UP, UP])
    assert len(front.lost) == 2


AWAY = """say('{"type": "load_failed", "reason": "desk1 is away", "may_recover": true}\\n'); sys.exit(1)"""


async def test_a_first_start_for_which_another_machine_is_away_may_be_tried_again(start):
    with pytest.raises(EngineError, match="desk1 is away"):
        await start(AWAY).running


async def test_answers_do_not_outlast_the_wait_for_a_machine_that_is_away(start):
    body = f"if first_time():\n    ready()\nelse:\n    {AWAY}"
    front = start(body)
    await front.until(lambda front: "desk1 is away" in front.lost)
    assert front.client.state is EngineState.RESTARTING


async def test_a_stop_ends_the_engine(start):
    front = await up(start)
    pid = front.pid
    await front.stop()
    assert (front.client.state, front.pid, front.lost) == (EngineState.STOPPED, None, [])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_after_the_end_no_descriptor_is_held_back(start):
    before = n_open()
    front = await up(start)
    await front.stop()
    assert n_open() <= before


async def test_drafts_that_the_engine_does_not_read_are_replaced_by_newer_ones(start, tmp_path):
    front = await up(
        start,
        "ready()\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "signal.sigwait([signal.SIGUSR1])\n"
        "for _ in range(500):\n    notes.open('a').write(commands.readline())\n"
        """say('{"type": "finished", "sequence": "x", "reason": "stop"}\\n')\n""" + LISTEN,
    )
    sequence = front.client.submit(submission())
    for base in range(20_000):
        front.client.post_draft(Draft(sequence=sequence.id, source="desk", base=base, tokens=[2]))
    n_held = len(sequence.held_drafts)
    os.kill(front.pid, signal.SIGUSR1)
    await front.until(lambda front: len(front.events) == 2)
    await front.stop()
    lines = (tmp_path / "notes").read_text().splitlines()
    assert n_held == 1
    assert len(lines) < 20_000
    assert '"base":19999' in lines[-1]


SAY_LOAD = """
def say_load():
    import json
    sequence = json.dumps({k: json.loads(load)[k] for k in ("policy", "depth")})
    say(json.dumps({"type": "finished", "sequence": sequence, "reason": "stop"}) + chr(10))
"""
ANSWERS = """
import json
ready()
for line in commands:
    notes.open('a').write(line)
    asked = json.loads(line)
    if asked["type"] == "ask":
        answer = {"reply": {"report": {"n": 1}, "n_tokens": 5}}
        say(json.dumps({"type": "answer", "number": asked["number"], **answer}) + chr(10))
"""
DIES_WHEN_ASKED = "if first_time():\n    ready(); commands.readline(); sys.exit(3)\n"
REPORT = Explained(report={"n": 1})
ERASE = ActOnSlot(action="erase", slot=0)


async def test_policy_and_sources_reach_a_running_engine(start, tmp_path):
    front = await up(start)
    front.client.connect(SetBacks(names=["desk"]))
    front.client.set_policy("sync", 7)
    front.client.connect(SetBacks(names=[]))
    await front.stop()
    commands = [SetBacks(names=["desk"]), SetPolicy(policy="sync", depth=7), SetBacks(names=[])]
    assert (tmp_path / "notes").read_bytes() == b"".join(encode_line(command) for command in commands)


async def test_an_engine_that_is_started_again_has_the_policy_of_last(start):
    front = await up(
        start,
        SAY_LOAD
        + "if first_time():\n    ready(); commands.readline(); sys.exit(3)\nsay_load(); ready()\n"
        + LISTEN,
    )
    front.client.set_policy("sync", 7)
    await front.until(lambda front: front.events.count(UP) == 2)
    assert front.events[1].sequence == '{"policy": "sync", "depth": 7}'


async def test_a_policy_set_before_the_engine_is_ready_is_not_lost(start):
    front = start(SAY_LOAD + "if first_time():\n    sys.exit(3)\nsay_load(); ready()\n" + LISTEN)
    front.client.set_policy("off", 0)
    await front.until(is_up)
    assert front.events[0].sequence == '{"policy": "off", "depth": 0}'


async def test_an_engine_that_is_started_again_is_told_who_is_connected(start, tmp_path):
    front = await up(
        start, "if first_time():\n    ready(); commands.readline(); sys.exit(3)\nready()\n" + LISTEN
    )
    front.client.connect(SetBacks(names=["desk"]))
    await front.until(lambda front: front.events == [UP, UP])
    await front.stop()
    assert (tmp_path / "notes").read_bytes() == encode_line(SetBacks(names=["desk"]))


async def test_a_question_gets_its_reply(start, tmp_path):
    front = await up(start, ANSWERS)
    assert await asyncio.gather(front.client.ask(Explain()), front.client.ask(ERASE)) == [
        REPORT,
        SlotActed(n_tokens=5),
    ]
    await front.stop()
    asked = (
        Ask(number=0, question="Explain"),
        Ask(number=1, question="ActOnSlot", fields=ERASE.model_dump(mode="json")),
    )
    assert (tmp_path / "notes").read_bytes() == b"".join(map(encode_line, asked))


@pytest.mark.parametrize(("may_recover", "error"), [(False, RequestError), (True, UnavailableError)])
async def test_why_a_question_is_refused_is_said(start, may_recover, error):
    answer = f'answer = {{"reason": "no text", "may_recover": {may_recover}}}'
    front = await up(
        start, ANSWERS.replace('answer = {"reply": {"report": {"n": 1}, "n_tokens": 5}}', answer)
    )
    with pytest.raises(error, match="no text"):
        await front.client.ask(ERASE)


async def test_a_question_that_only_looks_is_not_waited_for_without_end(start, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    front = await up(start)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="not replied"):
            await front.client.ask(Explain())
    await front.stop()
    assert (tmp_path / "notes").read_bytes() == encode_line(Ask(number=0, question="Explain"))


@pytest.mark.parametrize(("question", "reply"), [(Explain(), REPORT), (ERASE, SlotActed(n_tokens=5))])
async def test_an_engine_that_dies_answers_nothing_and_the_next_one_does(start, question, reply):
    front = await up(start, DIES_WHEN_ASKED + ANSWERS)
    with pytest.raises(UnavailableError, match="ended"):
        await front.client.ask(question)
    await front.until(lambda front: front.events == [UP, UP])
    assert await front.client.ask(question) == reply


@pytest.mark.parametrize("question", [Explain(), ERASE])
async def test_an_engine_that_has_never_been_ready_is_asked_nothing(start, question):
    front = start(LISTEN)
    with pytest.raises(NotServingError, match="is loading"):
        await front.client.ask(question)


async def test_an_engine_that_is_started_again_is_waited_for_but_not_to_look(start):
    front = start("if first_time():\n    ready(); sys.exit(3)\n" + ANSWERS)
    await front.until(lambda front: front.lost)
    with pytest.raises(NotServingError, match="is restarting"):
        await front.client.ask(Explain())
    assert (await front.client.ask(ERASE)).n_tokens == 5


async def until_state(front, state):
    async with asyncio.timeout(60):
        while front.client.state is not state:  # noqa: ASYNC110 - it has no event for this
            await asyncio.sleep(0.01)


async def test_an_idle_engine_ends_and_is_started_again_for_the_next_request(start, tmp_path):
    front = start("ready()\n" + LISTEN, sleep_seconds=0.03)
    await until_state(front, EngineState.SLEEPING)
    await front.until(lambda front: front.n_slept == 1)
    assert front.client.ready
    sequence = front.client.submit(submission())
    await front.until(lambda front: front.events == [UP, UP])
    await front.stop()
    assert (tmp_path / "notes").read_bytes() == encode_line(sequence.submission())
    assert front.lost == []


async def test_a_sleeping_engine_is_started_before_the_request_that_is_being_read_is_there(start):
    front = start("ready()\n" + LISTEN, sleep_seconds=0.03)
    await until_state(front, EngineState.SLEEPING)
    front.create(submission())
    front.client.wake()
    await front.until(lambda front: front.events == [UP, UP])


async def test_a_sleeping_engine_is_woken_for_a_question(start):
    front = start(ANSWERS, sleep_seconds=0.03)
    await until_state(front, EngineState.SLEEPING)
    assert (await front.client.ask(ERASE)).n_tokens == 5


async def test_but_not_for_one_that_only_looks(start):
    front = start(ANSWERS, sleep_seconds=0.03)
    await until_state(front, EngineState.SLEEPING)
    with pytest.raises(NotServingError, match="idle model"):
        await front.client.ask(Explain())
    assert front.client.state is EngineState.SLEEPING


async def test_who_waits_for_a_sleeping_engine_learns_that_it_will_not_be_woken(start):
    front = start("ready()\n" + LISTEN, sleep_seconds=0.03)
    await until_state(front, EngineState.SLEEPING)
    asking = asyncio.ensure_future(front.client.ask(ERASE))
    await asyncio.sleep(0)
    await front.stop()
    with pytest.raises(NotServingError, match="shutting down"):
        await asking


async def test_an_engine_with_an_open_question_stays_awake(start):
    front = start("ready()\n" + LISTEN, sleep_seconds=0.00001)
    sequence = front.create(submission())
    await front.until(is_up)
    asking = asyncio.ensure_future(front.client.ask(ERASE))
    await asyncio.sleep(0)
    front.discard(sequence)
    for _ in range(5):
        await front.client._keeper.wait()
    assert front.client.state is EngineState.READY
    asking.cancel()
