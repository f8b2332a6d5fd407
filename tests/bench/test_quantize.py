import pytest

from bench.quantize import quantize
from shared.errors import ModelLoadError
from shared.models.builtin import builtin_draft


def test_a_model_that_cannot_be_written_leaves_no_file(tmp_path):
    with pytest.raises(ModelLoadError, match="cannot be written as f16"):
        quantize(builtin_draft(), tmp_path / "out.gguf", "f16")  # from 8 bits
    assert not list(tmp_path.iterdir())
