"""`lead generate` with real models: what it prints where, and how it ends."""

import os
import re
import signal
import subprocess
import sys

import pytest

from shared.models.builtin import builtin_draft, builtin_target
from tests.shared.models.convert import gpt2_reference as gpt2
from tests.shared.models.convert import llama2c_reference as llama2c
from tests.shared.models.convert.conftest import PIECES, SCORES, small_gpt2, small_llama

pytestmark = pytest.mark.real

TARGET, DRAFT = str(builtin_target()), str(builtin_draft())
PROMPT = "Once upon a time"


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


@pytest.fixture
def environment(sources):
    """Of the program: its cache is in the folder."""
    return os.environ | {"XDG_CACHE_HOME": str(sources / "cache"), "BACK_THREADS": "1"}


@pytest.fixture
def generate(sources, environment):
    """Runs it to its end, in the folder with the models."""

    def run(*arguments, **options):
        command = [sys.executable, "-m", "lead", "generate", "-t", "1", *arguments]
        options = {"stdin": subprocess.DEVNULL, "cwd": sources} | options
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=240, **options
        )

    return run


def test_only_the_text_goes_to_a_pipe(generate):
    ended = generate("--model", TARGET, "-n", "12", "-i", PROMPT, "--ignore-eos")
    assert ended.returncode == 0
    assert ended.stdout.startswith(PROMPT)
    assert len(ended.stdout) > len(PROMPT) + 12
    assert re.search(r"generated  12 tokens in .* tokens/s", ended.stderr)


def test_the_prompt_can_be_left_out(generate):
    ended = generate("--model", TARGET, "-n", "4", "-i", PROMPT, "--no-display-prompt")
    assert PROMPT not in ended.stdout
    assert ended.stdout.strip()


def test_a_prompt_is_read_from_standard_input(generate):
    command = ("--model", TARGET, "-n", "4", "-i", "-", "--temp", "0")
    piped = generate(*command, stdin=None, input=PROMPT)
    assert piped.stdout == generate(*command[:-3], PROMPT, *command[-2:]).stdout


def test_a_back_changes_no_text(generate):
    command = ("--model", TARGET, "-n", "60", "-i", "Tell me a story.", "--seed", "3")
    plain, drafted = generate(*command), generate(*command, "--back", DRAFT)
    assert drafted.stdout == plain.stdout
    assert re.search(r"drafts  \d+ of \d+ tokens accepted", drafted.stderr)


PAIRS = {
    "llama2.c for llama2.c": ("large.bin", "small.bin"),
    "quantized llama2.c for llama2.c": ("large.bin", "q8.bin"),
    "GPT-2 for GPT-2": ("gpt2", "gpt2-small"),
}


@pytest.mark.parametrize(("model", "back"), PAIRS.values(), ids=PAIRS)
def test_models_of_other_formats_draft_for_each_other(generate, model, back):
    ended = generate("--model", model, "--back", back, "-n", "30", "-i", PROMPT, "--compare", "--temp", "0")
    assert ended.returncode == 0, ended.stderr
    assert "same text  yes, every character" in ended.stderr
    assert f"with {back.removesuffix('.bin')}" in ended.stderr
    assert ended.stdout.count(PROMPT) == 1


def test_a_checkpoint_s_text_is_llama2_c_s(generate):
    ended = generate("--model", "large.bin", "-n", "20", "-i", PROMPT, "--temp", "0", "--ignore-eos")
    tokens = llama2c.greedy(small_llama(width=64), llama2c.encode(PROMPT, PIECES, SCORES), 20)
    text = b"".join(map(piece, tokens)).decode("utf-8", "replace")
    assert f" {ended.stdout}" == f"{text}\n"


def piece(token):
    """The bytes of a token; none of special ones."""
    if token < 3:
        return b""
    return bytes([token - 3]) if token < 259 else PIECES[token].encode()


def test_a_model_with_learned_positions_ends_with_its_context(generate):
    ended = generate(
        *("--model", "gpt2", "--back", "gpt2-small", "-n", "500", "-i", PROMPT, "--ignore-eos", "-c", "4096")
    )
    assert ended.returncode == 0, ended.stderr
    n_prompt = len(gpt2.encode(PROMPT))
    assert f"generated  {64 - n_prompt} tokens" in ended.stderr


def test_without_a_prompt_a_model_begins_with_its_first_token(generate):
    for model in ("small.bin", "gpt2"):
        assert "prompt  1 token in" in generate("--model", model, "-n", "3").stderr


def test_a_long_prompt_is_refused(generate):
    ended = generate("--model", "small.bin", "-i", "the " * 100)
    assert ended.returncode == 1
    assert re.fullmatch(
        r"lead generate: the request \(\d+ tokens\) exceeds the available context size \(64 tokens\)\n",
        ended.stderr,
    )


REFUSALS = {
    "no file": (("--model", "missing.gguf"), "is not there"),
    "no model": (("--model", "tokenizer.bin"), "is not a llama2.c checkpoint"),
    "a draft of another family": (("--model", "gpt2", "--back", "small.bin"), "cannot draft for gpt2"),
    "a draft that is not there": (("--model", "gpt2", "--back", "missing.bin"), "missing.bin is not there"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_done_is_said_in_a_sentence(generate, arguments, message):
    ended = generate(*arguments, "-i", PROMPT)
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("lead generate:"))
    assert message in line


def test_a_model_that_llama_cpp_does_not_load_is_said_in_a_sentence(generate, sources):
    (sources / "broken.gguf").write_bytes(b"GGUF" + bytes(1000))
    ended = generate("--model", "broken.gguf", "-i", PROMPT)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "lead generate: " in ended.stderr
    assert "broken.gguf cannot be loaded" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.fixture
def running(sources, environment):
    """One that generates without end, until the test ends it."""
    command = [sys.executable, "-m", "lead", "generate", "-t", "1", "--model", TARGET, "-i", PROMPT]
    with subprocess.Popen(
        [*command, "-n", "100000", "--ignore-eos", "--back", DRAFT, "-c", "2000"],
        env=environment,
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
