"""`lead generate` with real models: its outputs, and its ends."""

import functools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.model_files.builtin import builtin_draft, builtin_target
from tests.conftest import more
from tests.real.processes import F32_CACHE
from tests.shared.convert import gpt2_reference as gpt2
from tests.shared.convert import llama2c_reference as llama2c
from tests.shared.convert.conftest import PIECES, SCORES, small_gpt2, small_llama

pytestmark = pytest.mark.real

TARGET, DRAFT = str(builtin_target()), str(builtin_draft())
PROMPT = "Once upon a time"
GENERATE = [sys.executable, "-m", "lead", "generate", "-t", "1", "--no-calibrate"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A folder with models of llama2.c and GPT-2, and an empty cache."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "tokenizer.bin").write_bytes(llama2c.tokenizer_bin(PIECES, SCORES))
    (folder / "large.bin").write_bytes(llama2c.version_0(small_llama(width=64)))
    (folder / "small.bin").write_bytes(llama2c.version_1(small_llama(2)))
    (folder / "q8.bin").write_bytes(llama2c.version_2(small_llama(2, width=64, n_hidden=128), 64)[0])
    gpt2.write_folder(folder / "gpt2", *small_gpt2(n_layers=3), n_shards=2)
    gpt2.write_folder(folder / "gpt2-small", *small_gpt2())
    return folder


def environment(folder):
    """The program's environment. Its cache is in the folder."""
    return os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "BACK_THREADS": "1"}


def run_in(folder, *arguments, **options):
    """Run the program to its end, in the folder with the models."""
    command = [*GENERATE, *arguments]
    options = {"stdin": subprocess.DEVNULL, "env": environment(folder)} | options
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=240, **options
    )


@pytest.fixture
def generate(sources):
    return functools.partial(run_in, sources)


@pytest.fixture(scope="module")
def story(target):
    """The options to generate a text, without the prompt."""
    return ("--model", str(target), *F32_CACHE, "-n", "60", "--seed", "3", "--ignore-eos", "--calibrate")


@pytest.fixture(scope="module")
def plain(sources, story):
    """A generation without a back that has ended."""
    return run_in(sources, *story, "-i", PROMPT)


def test_only_the_text_goes_to_a_pipe(plain):
    assert plain.returncode == 0
    assert plain.stdout.startswith(PROMPT)
    assert len(plain.stdout) > len(PROMPT) + 60
    assert re.search(r"generated  60 tokens in .* tokens/s", plain.stderr)


def test_a_prompt_is_read_from_standard_input_and_can_be_left_out(generate, story, plain):
    ended = generate(*story, "-i", "-", "--no-display-prompt", stdin=None, input=PROMPT)
    assert PROMPT + ended.stdout == plain.stdout


def test_a_back_changes_no_text(generate, story, plain):
    # A fast lead would be at the end of the text before the first draft arrives.
    drafted = generate(*story, "-i", PROMPT, "--back", DRAFT, "--policy", "sync")
    assert drafted.stdout == plain.stdout
    assert re.search(r"drafts  \d+ of \d+ tokens accepted", drafted.stderr)


def test_models_of_llama2_c_draft_for_each_other(generate):
    ended = generate(
        "--model", "large.bin", "--back", "q8.bin", "-n", "30", "-i", PROMPT, "--compare", "--temp", "0"
    )
    assert ended.returncode == 0, ended.stderr
    assert "same text  yes, every character" in ended.stderr
    assert "with q8" in ended.stderr
    assert ended.stdout.count(PROMPT) == 1


def test_models_with_learned_positions_draft_to_the_end_of_their_context(generate):
    """The context is the model's: it has no more positions, although the options ask for more."""
    command = ("--model", "gpt2", "--back", "gpt2-small", "-n", "500", "-i", PROMPT, "--ignore-eos")
    ended = generate(*command, "-c", "4096", "--compare", "--temp", "0")
    assert ended.returncode == 0, ended.stderr
    assert "same text  yes, every character" in ended.stderr
    assert "plain  60 tokens" in ended.stderr  # 4 of its 64 positions are the prompt's


@pytest.mark.parametrize("model", [more("small.bin"), "gpt2"])
def test_without_a_prompt_a_model_begins_with_its_first_token(generate, model):
    assert "prompt  1 token in" in generate("--model", model, "-n", "3").stderr


@pytest.fixture
def running(sources):
    """A generation without end, until the test ends it."""
    command = [*GENERATE, "--model", TARGET, "-i", PROMPT]
    with subprocess.Popen(
        [*command, "-n", "100000", "--ignore-eos", "--back", DRAFT, "-c", "2000"],
        env=environment(sources),
        cwd=sources,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stdout.read(len(PROMPT) + 20).startswith(PROMPT.encode())
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_without_a_word(running, number):
    running.send_signal(number)
    _, errors = running.communicate(timeout=120)
    assert (running.returncode, errors) == (130, b"")


def test_a_closed_pipe_ends_it_without_a_word(running):
    running.stdout.close()
    assert (running.wait(timeout=120), running.stderr.read()) == (141, b"")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_a_full_disk_is_told_in_a_sentence(sources):
    command = [*GENERATE, "--model", TARGET, "-i", PROMPT, "-n", "3"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            command, env=environment(sources), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "lead generate: No space left on device\n")
