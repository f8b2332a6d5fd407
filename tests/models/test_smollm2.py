"""The recipe of the draft model for SmolLM2: its questions, and how its file stores weights."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

FOLDER = Path(__file__).parents[2] / "models" / "smollm2"
NOUN = '00000001 03 n 01 lamp 0 000 | a thing that gives light; "an example"'


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    """One word of each part of speech, twice, since two different ones are asked for."""
    for part in ("noun", "verb", "adj"):
        (tmp_path / f"data.{part}").write_text(f"  1 license\n{NOUN}\n", encoding="latin-1")
        lines = [f"{word} {part[0]} 1 0 1 1 00000001" for word in ("lamp", "light")]
        (tmp_path / f"index.{part}").write_text("\n".join(lines), encoding="latin-1")
    return tmp_path


def test_a_seed_repeats_the_questions(wordnet: Path) -> None:
    prompts = load("prompts")

    def drawn(seed: int) -> list[dict[str, str]]:
        questions = prompts.Questions(wordnet, seed)
        return [questions.draw() for _ in range(50)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_no_question_has_a_gap(wordnet: Path) -> None:
    prompts = load("prompts")
    questions = prompts.Questions(wordnet, 3)
    names = {"{noun}", "{meaning}", "{verb}", "{person}", "{thing}", "{a}", "{code}", "{task}", "{concept}"}
    asked = [questions.draw()["prompt"] for _ in range(2000)]
    assert not [prompt for prompt in asked if any(name in prompt for name in names)]


def test_a_function_is_python(wordnet: Path) -> None:
    questions = load("prompts").Questions(wordnet, 1)
    for _ in range(300):
        assert ast.parse(questions._function())


def test_words_in_a_row_are_found() -> None:
    runs = load("heldout").runs
    text = "one two three four five six seven eight nine ten eleven"
    assert len(runs(text)) == 2
    assert runs(f"And so: {text.upper()}!") & runs(text)
    assert not runs("one two three")


def test_weights_are_stored_as_llama_cpp_reads_them() -> None:
    four_bits = load("four_bits")
    weights = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    weights[0] = 0
    data = four_bits.encode(weights)
    read = quants.dequantize(data, GGMLQuantizationType.IQ4_NL)
    assert np.array_equal(read, four_bits.decode(data))
    assert np.linalg.norm(read - weights) / np.linalg.norm(weights) < 0.08
    assert not read[0].any()
