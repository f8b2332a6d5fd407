"""A lead's own back is started, started again and ended. It never delays the lead.

The back here is a script that is run in place of `python -m back`. It reports over a FIFO that it is up.
"""

import asyncio
import os
import random
import subprocess
import sys

import pytest

from lead.server import local_back as module
from lead.server.local_back import LocalBack, back_command, back_environment, invite_command, local_url
from lead.settings.lead_settings import LeadSettings
from shared.keeper import Child
from shared.model_files.builtin import builtin_draft
from shared.sandbox import NO_GPU

SCRIPT = """
import os, signal, sys, time
def up():
    with open({fifo!r}, "w") as fifo:
        fifo.write(f"{{os.getpid()}}\\n")
{body}
"""
WAIT_FOR_END = "up(); time.sleep(600)"


class Lead:
    """The owner of a local back, and the messages from the child."""

    def __init__(self, command, fifo, **options):
        self.ready = asyncio.Event()
        self.ready.set()
        self.back = LocalBack(command, random.Random(0), **options)
        self.running = None
        self._fifo = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)  # to write, too: so it never ends
        self._news = asyncio.StreamReader()

    async def start(self):
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._news), os.fdopen(self._fifo, "rb")
        )
        self._transport = transport
        self.running = asyncio.ensure_future(self.back.run(self.ready))

    async def child(self):
        """The process id of the next child that is up."""
        async with asyncio.timeout(60):
            return int(await self._news.readline())

    async def stop(self):
        self.back.stop()
        _, pending = await asyncio.wait({self.running}, timeout=60)
        assert not pending
        self._transport.close()
        await asyncio.sleep(0)  # it closes in the next turn of the loop


@pytest.fixture
async def start(tmp_path, monkeypatch):
    """Starts a lead whose back runs `body`."""
    monkeypatch.setattr(module, "_FIRST_DELAY", 0.01)
    leads = []

    async def start(body, *, ready=True, **options):
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        path = tmp_path / "back.py"
        path.write_text(SCRIPT.format(fifo=str(fifo), body=body))
        lead = Lead([sys.executable, str(path)], fifo, **options)
        leads.append(lead)
        if not ready:
            lead.ready.clear()
        await lead.start()
        return lead

    yield start
    for lead in leads:
        await lead.stop()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_is_started_once_the_engine_is_ready(start):
    lead = await start(WAIT_FOR_END, ready=False)
    lead.ready.set()
    assert is_alive(await lead.child())


async def test_none_is_started_while_the_engine_is_not_ready(start, monkeypatch):
    starts = []
    monkeypatch.setattr(module, "Child", lambda *_, **__: starts.append(1))
    lead = await start(WAIT_FOR_END, ready=False)
    await lead.stop()
    assert starts == []


@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(3)", "sys.exit(0)"], ids=["killed", "3", "0"]
)
async def test_one_that_dies_is_started_again(start, end):
    lead = await start(f"up(); {end}")
    assert await lead.child() != await lead.child()


@pytest.mark.parametrize("status", [1, 2])
async def test_one_that_needs_a_person_is_not_started_again(start, status, caplog):
    lead = await start(f"up(); sys.exit({status})")
    await lead.child()
    async with asyncio.timeout(60):
        await lead.running
    assert [record.message for record in caplog.records] == [
        "the local back failed and is not restarted. The lead continues without it"
    ]


async def test_stopping_ends_it_in_an_orderly_way(start, tmp_path):
    note = tmp_path / "note"
    lead = await start(
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(note)!r}, 'w'), sys.exit(0))); {WAIT_FOR_END}"
    )
    child = await lead.child()
    await lead.stop()
    assert note.exists()
    assert not is_alive(child)


async def test_a_lead_can_end_while_it_waits_to_start_it_again(start, monkeypatch, caplog):
    monkeypatch.setattr(module, "_FIRST_DELAY", 3600.0)
    lead = await start("sys.exit(3)")
    while "ended with status 3" not in caplog.text:  # noqa: ASYNC110 - it has no event for this
        await asyncio.sleep(0.01)
    await lead.stop()


async def test_a_cancelled_supervisor_leaves_none_behind(start):
    lead = await start(WAIT_FOR_END)
    child = await lead.child()
    lead.running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lead.running
    assert not is_alive(child)


async def test_one_that_cannot_be_started_is_tried_again(start, monkeypatch, caplog):
    failures = iter([OSError("out of processes")])

    def fail_once(*arguments, **options):
        for failure in failures:
            raise failure
        return Child(*arguments, **options)

    monkeypatch.setattr(module, "Child", fail_once)
    lead = await start(WAIT_FOR_END)
    assert is_alive(await lead.child())
    assert "the local back cannot be started: out of processes" in caplog.text


def settings(*arguments):
    return LeadSettings.from_command_line(list(arguments))


def options(*arguments, host="127.0.0.1"):
    """The options of the back's command line, by name."""
    command = back_command(settings(*arguments), host, 5555)
    assert command[5] == "back"
    return dict(zip(command[6::2], command[7::2], strict=True))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:5555"),
        ("0.0.0.0", "http://127.0.0.1:5555"),
        ("::", "http://[::1]:5555"),
        ("::1", "http://[::1]:5555"),
        ("192.168.1.20", "http://192.168.1.20:5555"),
    ],
)
def test_it_dials_the_lead_where_it_listens(host, url):
    assert local_url(host, 5555) == url
    assert options("--back", "small.gguf", host=host)["--lead"] == url


@pytest.mark.parametrize(
    ("given", "option", "value"),
    [
        pytest.param((), "--model", str(builtin_draft()), id="the shipped draft model"),
        pytest.param(("--parallel", "7"), "--parallel", "7", id="as many sequences as the lead serves"),
        pytest.param((), "--threads", "1", id="one thread next to the lead's"),
        pytest.param(("--back-cpus", "2-3"), "--threads", "0", id="all of the chosen cores"),
    ],
)
def test_it_gets(given, option, value):
    assert options("--back", "builtin", *given)[option] == value


def test_a_path_is_a_path(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert options("--back", "small.gguf")["--model"] == str(tmp_path / "small.gguf")


def test_its_settings_are_handed_on_and_are_settings_of_a_back():
    given = options(
        *("--back", "builtin", "--back-threads", "3", "--back-gpu-layers", "9", "--back-cpus", "6-7")
    )
    assert (given["--threads"], given["--n-gpu-layers"], given["--cpus"]) == ("3", "9", "6-7")
    code = "import sys; from back.settings import BackSettings; BackSettings.from_command_line()"
    command = back_command(settings("--back", "builtin", "--back-cpus", "0"), "::", 1)
    subprocess.run([sys.executable, "-c", code, *command[6:]], check=True)


def test_its_environment_has_its_own_key_and_no_other_key_or_option_of_the_lead():
    leads = dict.fromkeys(
        ["LEAD_API_KEY", "LEAD_ADMIN_KEY", "LLAMA_API_KEY", "HF_TOKEN", "BACK_KEY"], "other"
    )
    leads |= {"PATH": "/bin", "LLAMA_ARG_CTX_SIZE": "1"}
    assert back_environment(leads, "own", 7) == {"PATH": "/bin", "BACK_KEY": "own", "BACK_CACHE_RAM": "7"}


def test_what_it_keeps_of_earlier_texts_can_be_chosen():
    assert back_environment({"BACK_CACHE_RAM": "9"}, "own", 7)["BACK_CACHE_RAM"] == "9"


def test_its_key_is_not_on_its_command_line():
    command = back_command(settings("--back", "builtin", "--api-key", "secret"), "::", 1)
    assert not [word for word in command if "secret" in word or "key" in word]


async def test_it_is_started_in_the_environment_it_is_given(start, tmp_path):
    note = tmp_path / "note"
    body = f"open({str(note)!r}, 'w').write(repr(sorted(os.environ))); {WAIT_FOR_END}"
    lead = await start(body, environment={"BACK_KEY": "own"})
    await lead.child()
    assert "BACK_KEY" in note.read_text()
    assert "PATH" not in note.read_text()


def test_at_a_lead_with_tls_it_trusts_the_leads_own_certificate_under_any_name():
    tls = ("--ssl-cert-file", "cert.pem", "--ssl-key-file", "key.pem")
    given = options("--back", "builtin", *tls)
    assert (given["--lead"], given["--pinned-certificate-file"]) == ("https://127.0.0.1:5555", "cert.pem")


def test_a_back_on_the_cpu_finds_no_gpu():
    assert back_environment({}, "own", 7, needs_gpu=False).items() >= NO_GPU.items()
    assert not back_environment({}, "own", 7).keys() & NO_GPU.keys()


@pytest.mark.parametrize(("port", "more"), [(5555, ""), (5700, " --lead http://127.0.0.1:5700")])
def test_the_command_that_invites_names_a_lead_at_another_port(port, more):
    assert invite_command(local_url("0.0.0.0", port)) == "lead invite --open --nearby" + more
