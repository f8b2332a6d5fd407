import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model_files.builtin import builtin_draft, builtin_target
from shared.model_files.gguf_header import BadHeaderError, EndsInHeaderError, declared_size, first_values


@pytest.mark.parametrize("path", [builtin_draft(), builtin_target()], ids=["draft", "target"])
def test_a_whole_file_is_as_large_as_its_header_says(path):
    assert declared_size(path.read_bytes()) == path.stat().st_size


def test_the_first_values_are_those_before_the_vocabulary():
    values = first_values(builtin_draft().read_bytes())
    assert values["general.architecture"] == "llama"
    assert not any(key.startswith("tokenizer.") for key in values)


@given(st.binary(max_size=200), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_no_header_is_too_much(rest, n_tensors, n_values):
    data = struct.pack("<4sIQQ", b"GGUF", 3, n_tensors, n_values) + rest
    with contextlib.suppress(BadHeaderError, EndsInHeaderError):
        declared_size(data)
