"""The draft model for SmolLM2: its recipe's questions, how its file stores weights, and its acceptance."""

import ast
import importlib.util
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, quants

from models.smollm2.acceptance import positions
from shared.llama.model import Model
from shared.memory.plan_memory import plan_memory
from shared.sampling.parameters import SamplingParameters
from shared.settings.model_options import ModelOptions

FOLDER = Path(__file__).parents[2] / "models" / "smollm2"
DRAFT = FOLDER / "wheel" / "llama_duo_smollm2" / "smollm2-draft.gguf"
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
    """Two words of each part of speech, since the prompts ask for two different words."""
    for part in ("noun", "verb", "adj"):
        (tmp_path / f"data.{part}").write_text(f"  1 license\n{NOUN}\n", encoding="latin-1")
        lines = [f"{word} {part[0]} 1 0 1 1 00000001" for word in ("lamp", "light")]
        (tmp_path / f"index.{part}").write_text("\n".join(lines), encoding="latin-1")
    return tmp_path


@pytest.fixture(scope="module")
def prompts() -> ModuleType:
    """The module with a part of Python's library, which takes seconds to read in full."""
    module = load("prompts")
    functions = list(islice(module._library_functions(), 200))
    module._library_functions = lambda: functions
    return module


def test_a_seed_repeats_the_questions(wordnet: Path, prompts: ModuleType) -> None:
    def drawn(seed: int) -> list[dict[str, str]]:
        questions = prompts.Questions(wordnet, seed)
        return [questions.draw() for _ in range(50)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_no_question_has_a_gap(wordnet: Path, prompts: ModuleType) -> None:
    questions = prompts.Questions(wordnet, 3)
    names = {"{noun}", "{meaning}", "{verb}", "{person}", "{thing}", "{a}", "{code}", "{task}", "{concept}"}
    asked = [questions.draw()["prompt"] for _ in range(2000)]
    assert not [prompt for prompt in asked if any(name in prompt for name in names)]


def test_a_function_is_python(wordnet: Path, prompts: ModuleType) -> None:
    questions = prompts.Questions(wordnet, 1)
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


@pytest.mark.models
def test_the_trained_file_is_as_described() -> None:
    reader = GGUFReader(DRAFT)
    assert reader.fields["llama.block_count"].contents() == 6
    assert reader.fields["general.license"].contents() == "apache-2.0"
    assert sum(int(tensor.n_elements) for tensor in reader.tensors) == 49_552_704
    kinds = {len(tensor.shape): tensor.tensor_type for tensor in reader.tensors}
    assert kinds == {1: GGMLQuantizationType.F32, 2: GGMLQuantizationType.IQ4_NL}


@pytest.mark.models
@pytest.mark.parametrize(("temperature", "minimum"), [(0.0, 0.5), (0.8, 0.4)])
def test_it_is_often_right(smollm2: Path, temperature: float, minimum: float) -> None:
    """`models/smollm2/acceptance.py` measures the acceptance with more prompts."""
    options = ModelOptions(ctx_size=512, parallel=1, threads=1)
    pair = (Model(plan_memory(smollm2, options)), Model(plan_memory(DRAFT, options)))
    parameters = SamplingParameters(seed=1, temperature=temperature, top_k=0, top_p=1, min_p=0)
    prompts = ("How do bees make honey?", "Write a Python function that reverses the words of a sentence.")
    drafted = [each.coupled for prompt in prompts for each in positions(*pair, prompt, parameters, 80)]
    assert sum(drafted) / len(drafted) > minimum
