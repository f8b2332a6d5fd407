"""No process of a program is left when the program was killed, even if its processes are busy.

Here they are stopped: a stopped process can do nothing, not even notice that something has closed.
"""

import contextlib
import fcntl
import os
import re
import select
import signal
import time
from pathlib import Path

import psutil
import pytest

from lab.parts.processes import Program, start_back, start_lead
from shared.llama.native import FOLDER
from shared.model_files.builtin import builtin_draft
from tests.minilm import tiny_bert
from tests.real.client import ask, stream
from tests.real.processes import BACK, LEAD
from tests.tiny_projectors import write_tiny_projector

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the kernel ends them on Linux only"),
]

SECONDS = 60.0
GRAMMAR = 'root ::= "a"+'


def n_signalled(process):
    """The number of a process's descriptors for which the kernel signals an event."""
    flags = re.compile(r"^flags:\s+(\d+)", re.MULTILINE)
    found = [flags.search(each.read_text()) for each in Path(f"/proc/{process.pid}/fdinfo").iterdir()]
    return sum(bool(each and int(each.group(1), 8) & fcntl.FASYNC) for each in found)


def has_begun(process):
    """Return whether a process does more than load Python. Until it does, it will notice by itself."""
    parent = process.parent()
    inherited = n_signalled(parent) if parent and parent.cmdline() == process.cmdline() else 0
    return (
        "multiprocessing.resource_tracker" in " ".join(process.cmdline()) or n_signalled(process) > inherited
    )


def stop(process):
    """Stop a process once it has begun."""
    until = time.monotonic() + SECONDS
    os.kill(process.pid, signal.SIGSTOP)
    while not has_begun(process):
        assert time.monotonic() < until, process.cmdline()
        os.kill(process.pid, signal.SIGCONT)
        os.sched_yield()
        os.kill(process.pid, signal.SIGSTOP)


def below(process):
    """All processes below a process. They are stopped, so that none can start another."""
    found = {}
    while new := [each for each in process.children(recursive=True) if each.pid not in found]:
        for each in new:
            found[each.pid] = each
            with contextlib.suppress(OSError, psutil.NoSuchProcess):  # it has ended meanwhile
                stop(each)
    return {pid: each for pid, each in found.items() if each.is_running() and each.status() != "zombie"}


def left_after(program):
    """The command lines of processes left some time after a program was killed, and of all its processes."""
    found = below(psutil.Process(program.process.pid))
    names = {pid: " ".join(each.cmdline()) for pid, each in found.items()}
    descriptors = {pid: os.pidfd_open(pid) for pid in found}
    program.signal(signal.SIGKILL)
    program.process.wait()
    until = time.monotonic() + SECONDS
    left = []
    for pid, descriptor in descriptors.items():
        only_reads = "multiprocessing.resource_tracker" in names[pid]  # Python's own: stopped, it stays
        seconds = 0.0 if only_reads else max(0.0, until - time.monotonic())
        ended, _, _ = select.select([descriptor], [], [], seconds)
        if not (ended or only_reads):
            left.append(names[pid])
        if not ended:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        os.close(descriptor)
    return left, list(names.values())


def holds(names, *modules):
    return all(any(module in name for name in names) for module in modules)


def test_a_lead_leaves_no_engine_no_workers_no_back_and_nothing_for_vectors(target, tmp_path):
    vectors = ("--embedding-model", str(tiny_bert(tmp_path / "bert.gguf", ["hello", "fox"])))
    lead, url = start_lead("--model", str(target), *LEAD, "--back", "builtin", *vectors)
    with lead:
        lead.wait_for(r"back local .*joined")
        lead.wait_for("embeddings INFO: ready")
        with stream(url, grammar=GRAMMAR, max_tokens=2000) as answer:
            answer.until(lambda reply: reply.text)
            left, names = left_after(lead)
    assert left == []
    assert holds(names, "lead.engine", "python_child", " back --lead", "lead.embeddings.encoder_program")
    assert sum("shared.fork_server" in name for name in names) > 3  # two, and what they have forked


@pytest.mark.skipif(not any(FOLDER.glob("*mtmd*")), reason="no libmtmd (make images)")
def test_a_lead_that_sees_leaves_nothing(tiny_model, tmp_path):
    projector = write_tiny_projector("gemma3", tmp_path / "mmproj.gguf")
    lead, _ = start_lead("--model", str(tiny_model("gemma3")), "--mmproj", str(projector), *LEAD)
    with lead:
        left, names = left_after(lead)
    assert left == []
    assert holds(names, "lead.images.image_encoder_process")


def test_a_back_leaves_nothing(served):
    _, url = served
    with start_back(url, "--model", str(builtin_draft()), *BACK) as back:
        assert ask(url, grammar=GRAMMAR, max_tokens=8).text
        left, names = left_after(back)
    assert left == []
    assert holds(names, "shared.fork_server")


def test_a_router_leaves_no_model_and_nothing_of_one(tiny_model):
    model = tiny_model("llama")
    small = ("--threads", "1", "--ctx-size", "256", "--no-calibrate")
    options = ("--port", "0", "--models-dir", str(model.parent), *small)
    with Program("lead", *options) as router:
        url = router.wait_for(r"listening on (http://\S+), with").group(1)
        assert ask(url, model=model.stem, max_tokens=2).done
        left, names = left_after(router)
    assert left == []
    assert holds(names, "lead.router.model_lead", "lead.engine", "shared.fork_server")


def test_measuring_leaves_nothing(tiny_model):
    model = str(tiny_model("llama"))
    with Program("lead", "plan", "--model", model, "--draft-model", model, "--threads", "1") as plan:
        plan.wait_for("measuring the model")
        left, names = left_after(plan)
    assert left == []
    assert holds(names, "multiprocessing.spawn")
