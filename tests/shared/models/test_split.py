from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.scripts.gguf_new_metadata import copy_with_new_metadata

from shared.errors import ModelLoadError
from shared.llama.model import Model
from shared.llama.span import Span
from shared.llama.vocabulary import Vocabulary
from shared.models.builtin import builtin_target
from shared.models.split import parts_of, read_name
from shared.settings.model_options import ModelOptions


@pytest.fixture
def files(tmp_path):
    """Make empty files; the path of the first."""

    def files(*names):
        for name in names:
            (tmp_path / name).touch()
        return tmp_path / names[0]

    return files


def test_a_name_says_which_part_it_is():
    part = read_name("big-00002-of-00003.gguf")
    assert (part.number, part.count) == (2, 3)
    assert part.all() == [f"big-0000{n}-of-00003.gguf" for n in (1, 2, 3)]


@pytest.mark.parametrize("name", ["big.gguf", "big-1-of-3.gguf", "big-00001-of-00003.bin", "-of-.gguf"])
def test_other_names_are_of_whole_models(name):
    assert read_name(name) is None


def test_a_whole_model_is_its_only_part(files):
    path = files("big.gguf")
    assert parts_of(path) == [path]


def test_the_first_part_finds_the_others(files):
    path = files("big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    assert parts_of(path) == [path, path.with_name("big-00002-of-00002.gguf")]


def test_another_part_is_answered_with_the_first(files):
    path = files("big-00002-of-00002.gguf", "big-00001-of-00002.gguf")
    with pytest.raises(ModelLoadError, match=r"is part 2 of 2: name the first, .*/big-00001-of-00002\.gguf"):
        parts_of(path)


def test_a_part_that_is_missing_is_named(files):
    path = files("big-00001-of-00003.gguf", "big-00003-of-00003.gguf")
    with pytest.raises(ModelLoadError, match=r"1 are missing in its folder: big-00002-of-00003\.gguf"):
        parts_of(path)


@pytest.mark.parametrize("name", ["big.gguf", "big-00001-of-00003.gguf"])
def test_a_model_of_which_nothing_is_there_is_not_there(tmp_path, name):
    with pytest.raises(ModelLoadError, match="is not there: check the path"):
        parts_of(tmp_path / name)


def test_a_folder_is_told_from_a_path_to_nothing(tmp_path):
    with pytest.raises(ModelLoadError, match="is a folder: name a GGUF file in it"):
        parts_of(tmp_path)


@pytest.fixture(scope="module")
def split_model(tmp_path_factory):
    """The shipped target in three files; the path of the first."""
    folder = tmp_path_factory.mktemp("split")
    writer = gguf.GGUFWriter(folder / "toy.gguf", "llama", split_max_tensors=20)
    copy_with_new_metadata(gguf.GGUFReader(builtin_target()), writer, {}, [])
    path = folder / "toy-00001-of-00003.gguf"
    assert len(parts_of(path)) == len(list(folder.iterdir())) == 3
    return path


def load(path: Path) -> Model:
    return Model(path, ModelOptions(ctx_size=64, parallel=1, batch_size=32, threads=1))


def test_a_model_in_parts_computes_what_it_does_in_one(split_model):
    rows = []
    for path in (split_model, builtin_target()):
        model = load(path)
        rows.append(model.decode([Span(0, 0, [30, 40, 50], 1)])[0].copy())
        model.close()
    assert np.array_equal(*rows)


def test_a_model_in_parts_has_the_same_vocabulary(split_model):
    vocabulary = Vocabulary.load(split_model)
    assert vocabulary.identify() == Vocabulary.load(builtin_target()).identify()
    assert vocabulary.info.path == split_model


def test_another_part_is_refused_before_llama_cpp_sees_it(split_model):
    with pytest.raises(ModelLoadError, match="name the first"):
        load(split_model.with_name("toy-00002-of-00003.gguf"))
