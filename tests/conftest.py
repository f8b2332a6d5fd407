"""Property tests give the same result each time and write no files. `EXAMPLES=100` gives each 100 examples.

Tests marked `both_loops` run under asyncio's event loop and under uvloop, which the lead uses.
The loops differ where connections begin and end.
"""

import asyncio
import contextlib
import functools
import gc
import logging
import os
import resource
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
import uvloop
from hypothesis import HealthCheck, settings

from shared.convert.grow import Shape, grow
from shared.errors import ConfigError
from shared.llama.model import Model
from shared.llama.native import FOLDER
from shared.llama.vocabulary import Vocabulary
from shared.logs import UnblockedHandler
from shared.memory.plan_memory import plan_memory
from shared.model_files.builtin import builtin_target
from shared.sandbox import NO_GPU
from tests.real_models import GEMMA3, SMOLLM2, real_model
from tests.selection import is_proof, selection, shortened
from tests.tiny_models import TinyModel, with_heads, write_tiny_model
from tests.tiny_projectors import architecture_of, write_image_vocabulary, write_tiny_projector

# What a GPU computes differs in bits and is timed otherwise. `make gpu-test` is for GPUs.
if "GPU_TESTS" not in os.environ:
    os.environ.update(NO_GPU)

settings.register_profile(
    "steady",
    derandomize=True,
    database=None,
    deadline=None,  # a busy machine is no failure
    max_examples=int(os.environ.get("EXAMPLES", "25")),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")


# Looking for garbage takes a fifth of the time in which thousands of tests are collected.
gc.set_threshold(50_000, 50, 50)


def more(*values):
    """A case that `make test` leaves out: a quick case has another model with the same kind of memory."""
    return pytest.param(*values, marks=pytest.mark.models)


@pytest.fixture(scope="session")
def libmtmd():
    """Skip the test without llama.cpp's library for images."""
    if not any(FOLDER.glob("*mtmd*")):
        pytest.skip("no libmtmd (make images)")


@pytest.fixture(scope="session", autouse=True)
def programs_of_failed_tests():
    """Let `with Popen(…)` kill the program if the test fails. It would wait forever for a server."""
    ended = subprocess.Popen.__exit__

    def end(process, kind, value, traceback):
        if kind is not None:
            process.kill()
        return ended(process, kind, value, traceback)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess.Popen, "__exit__", end)
        yield


def pytest_collection_finish():
    """Exempt all collected tests from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def data_home(tmp_path_factory):
    """Give programs an empty folder for certificates and joined leads, instead of the developer's."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


def pytest_configure(config):
    """Select the tests of `-m`, without tests that run only by name.

    A shell that starts `make test &` makes all its programs ignore Ctrl-C, which tests send.
    With `-n`, pytest does not name a path that does not exist.
    """
    for path in (each.split("::")[0] for each in config.args):
        if not Path(path).exists():
            raise pytest.UsageError(f"no such file or folder: {path}")
    config.option.markexpr = selection(config.option.markexpr)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_teststatus(report):
    """Name a failed test at once: an interrupted run may not reach its summary."""
    if report.failed:
        kind = "failed" if report.when == "call" else "error"
        return kind, f"\n{kind.upper()} {report.nodeid}\n", kind.upper()
    return None


def pytest_addoption(parser):
    parser.addoption("--short-proofs", action="store_true", help="only some cases of each proof")


def pytest_collection_modifyitems(config, items):
    """Put slow files first, so that workers that share whole files end at the same time."""
    if config.option.short_proofs:
        items[:], left_out = shortened(items)
        config.hook.pytest_deselected(items=left_out)
    items.sort(key=lambda item: not (item.get_closest_marker("real") or is_proof(item)))


def pytest_asyncio_loop_factories(item):
    """The event loops under which a test runs, for pytest-asyncio."""
    loops = {"asyncio": asyncio.new_event_loop}
    return loops | {"uvloop": uvloop.new_event_loop} if item.get_closest_marker("both_loops") else loops


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk():
    """Skip fsync: the files of tests need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _logs_of_a_program_end_with_its_test():
    """Restore the log's handlers: a program inside a test would leave a closed stream to later tests."""
    root = logging.getLogger()
    before, level = [*root.handlers], root.level
    yield
    for handler in set(root.handlers) - set(before):
        if isinstance(handler, UnblockedHandler):
            root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once():
    """Read the system's certificates once: with each `httpx` client it takes longer than most requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            httpx._transports.default, "create_ssl_context", functools.cache(httpx.create_ssl_context)
        )
        yield


@pytest.fixture(scope="session")
def target(tmp_path_factory):
    """The shipped target, enlarged so that a step takes a few milliseconds and drafts arrive in time.

    Other sequences in the batch and in the cache change the last bits of a token's logits. Quantized weights
    round activations, too, and may amplify such a difference until another token is chosen. f32 weights do
    not.
    """
    path = tmp_path_factory.mktemp("models") / "target.gguf"
    grow(builtin_target(), path, Shape(width=480, n_layers=6, n_heads=14, n_feed_forward=1344), "f32")
    return path


@pytest.fixture(scope="session")
def vocabulary():
    """The vocabulary of the shipped models."""
    return Vocabulary.load(builtin_target())


@pytest.fixture(scope="session")
def smollm2():
    """A public model that answers questions, with 4 bits per weight."""
    return downloaded(SMOLLM2)


@pytest.fixture(scope="session")
def gemma3():
    """A public base model with sliding windows and a large vocabulary."""
    return downloaded(GEMMA3)


def downloaded(model):
    try:
        return real_model(model)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Writes a tiny random model of an architecture, once."""

    @functools.cache
    def write(architecture, seed=1):
        path = tmp_path_factory.mktemp("tiny") / f"{architecture}-{seed}.gguf"
        return write_tiny_model(TinyModel(architecture, seed), path)

    return write


@pytest.fixture(scope="session")
def tiny_sight(tiny_model, tmp_path_factory):
    """Writes a tiny random model and its projector of a kind, once."""

    @functools.cache
    def write(kind):
        folder = tmp_path_factory.mktemp("sight")
        projector, architecture = write_tiny_projector(kind, folder / "mmproj.gguf"), architecture_of(kind)
        if kind != "idefics3":
            return tiny_model(architecture), projector
        vocabulary = write_image_vocabulary(folder / "vocabulary.gguf")
        return write_tiny_model(TinyModel(architecture), folder / "model.gguf", vocabulary), projector

    return write


@pytest.fixture(scope="session")
def tiny_with_heads(tmp_path_factory):
    """Writes a tiny random model that has a head for a further token (MTP), once."""

    @functools.cache
    def write(architecture):
        path = tmp_path_factory.mktemp("heads") / f"{architecture}.gguf"
        return write_tiny_model(with_heads(architecture), path)

    return write


@pytest.fixture
def opened():
    """Open models, and close them in the end. `plan`: arguments of `plan_memory` besides the options."""
    models = []

    def open_model(path, options, **plan):
        models.append(Model(plan_memory(path, options, **plan)))
        return models[-1]

    yield open_model
    for model in models:
        model.close()


@pytest.fixture
def complaint(capsys):
    """A function that returns the error message of a call that ends the program with status 2."""

    def complaint(call, *arguments):
        with pytest.raises(SystemExit) as ended:
            call(*arguments)
        assert ended.value.code == 2
        return capsys.readouterr().err

    return complaint


@pytest.fixture
def all_in_use():
    """A function that opens every descriptor below a low limit and returns them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 32, hard))
    opened = []

    def use_up():
        with contextlib.suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
        return opened

    yield use_up
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
