"""Damaged and hostile model files are refused with a message, and other models are served."""

import itertools
import random
import subprocess

import pytest

from lead.router.catalog import find_models
from shared.llama.vocabulary import Vocabulary
from shared.model_files.builtin import builtin_draft
from shared.model_files.hub import Hub
from shared.python_child import python_command
from tests.conftest import more
from tests.strange_files import TEMPLATES, StrangeFiles, read_header

SMALL = ("--threads", "1", "--ctx-size", "256")
PROGRAMS = [
    ("lead", "--check", "--port", "0", *SMALL),
    ("lead", "generate", "-n", "1", "-i", "Hi", *SMALL),
    ("back", "--check", "--threads", "1"),
]
"""Programs that read one model each. `lead generate` starts a lead and all of its processes."""


@pytest.fixture(scope="module")
def strange():
    return StrangeFiles(random.Random(1), builtin_draft())


def test_a_template_is_changed_in_a_file_that_stays_good(strange, tmp_path):
    path = tmp_path / "other.gguf"
    path.write_bytes(strange.with_template("{{ 1 }}"))
    vocabulary = Vocabulary.load(path)
    assert vocabulary.info.chat_template == "{{ 1 }}"
    assert vocabulary.n_tokens == Vocabulary.load(builtin_draft()).n_tokens


def test_strange_files_differ_from_the_good_one_in_many_ways(strange):
    found = set(itertools.islice(strange, 100))
    assert len(found) > 80
    assert builtin_draft().read_bytes() not in found
    header = read_header(builtin_draft())
    assert min(map(len, (header.lengths, header.types, header.numbers, header.values))) > 8


def test_a_folder_of_strange_files_is_listed(strange, tmp_path):
    hostile = (strange.with_length(2**64 - 1), strange.nested(100_000), strange.cut(0.5))
    for number, content in enumerate((*hostile, *itertools.islice(strange, 150))):
        (tmp_path / f"{number}.gguf").write_bytes(content[: 1 << 16])
    (tmp_path / "good.gguf").symlink_to(builtin_draft())
    assert "good" in find_models(tmp_path, Hub())


@pytest.mark.real
@pytest.mark.parametrize("seed", [1, *(more(seed) for seed in range(2, 30))])
@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_programs_say_in_a_sentence_what_is_wrong(strange, tmp_path, program, seed):
    rng = random.Random(seed)
    path = tmp_path / "strange.gguf"
    path.write_bytes(
        rng.choice((strange.with_length(2**64 - 1), strange.with_template(rng.choice(TEMPLATES))))
    )
    done = subprocess.run(
        [*python_command(*program, "--model", str(path))], capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}
    assert "Traceback" not in done.stdout + done.stderr
