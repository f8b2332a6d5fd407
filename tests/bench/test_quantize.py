import pytest

from bench.quantize import quantize
from shared.errors import ModelLoadError
from shared.models.builtin import builtin_draft


def test_a_type_that_llama_cpp_does_not_write_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="'q9_9' is not a type"):
        quantize(builtin_draft(), tmp_path / "out.gguf", "q9_9")


def test_a_model_that_cannot_be_written_leaves_no_file(tmp_path):
    with pytest.raises(ModelLoadError, match="cannot be written as f16"):
        quantize(builtin_draft(), tmp_path / "out.gguf", "f16")  # from 8 bits
    assert not list(tmp_path.iterdir())
