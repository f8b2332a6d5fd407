import ctypes
from types import SimpleNamespace

import pytest

from shared.errors import LibraryError
from shared.llama.native import llama_cpp
from shared.llama.structures import check_structures
from tests.python_runs import sentence_of

SHIFTING = """
import ctypes

class Shifting(type(ctypes.Structure)):
    def __new__(kind, name, bases, members):
        if name == "llama_context_params":
            at = [field for field, _ in members["_fields_"]].index("abort_callback")
            members["_fields_"].insert(at, ("moe_cache_size", ctypes.c_size_t))
        return super().__new__(kind, name, bases, members)

ctypes.Structure = Shifting("Structure", (ctypes.Structure,), {})
"""
"""Bindings whose context has one field more than the library's, for sitecustomize.py."""


def bindings(**replaced):
    """llama_cpp's functions and library, with these structures in place of its own."""
    own = {name: getattr(llama_cpp, name) for name in ("llama_context_params", "llama_model_params")}
    return SimpleNamespace(_lib=llama_cpp.llama_cpp._lib, **own | replaced)


def changed(name, change):
    """The structure of this name with other fields."""
    fields = change(list(getattr(llama_cpp, name)._fields_))
    return {name: type(name, (ctypes.Structure,), {"_fields_": fields})}


def without(field):
    return lambda fields: [each for each in fields if each[0] != field]


def inserted_before(field, kind):
    def insert(fields):
        at = [name for name, _ in fields].index(field)
        return [*fields[:at], ("new", kind), *fields[at:]]

    return insert


def test_the_pinned_library_is_taken():
    check_structures(bindings())


@pytest.mark.parametrize(
    ("structure", "change"),
    [
        ("llama_context_params", inserted_before("abort_callback", ctypes.c_size_t)),
        ("llama_context_params", inserted_before("n_ctx", ctypes.c_uint32)),
        ("llama_context_params", inserted_before("type_k", ctypes.c_int)),
        ("llama_context_params", inserted_before("offload_kqv", ctypes.c_bool)),
        ("llama_context_params", without("cb_eval_user_data")),
        ("llama_context_params", without("n_rs_seq")),
        ("llama_context_params", without("swa_full")),
        ("llama_model_params", inserted_before("kv_overrides", ctypes.c_void_p)),
        ("llama_model_params", inserted_before("split_mode", ctypes.c_int)),
        ("llama_model_params", without("progress_callback_user_data")),
        ("llama_model_params", without("check_tensors")),
    ],
)
def test_one_with_a_shifted_field_is_refused(structure, change):
    with pytest.raises(LibraryError, match=rf"does not match the version .* of its {structure} is"):
        check_structures(bindings(**changed(structure, change)))


@pytest.mark.parametrize(
    "program",
    [["lead"], ["lead", "--check"], ["lead", "doctor"], ["lead", "plan"], ["back"], ["back", "doctor"]],
    ids=" ".join,
)
def test_a_program_then_ends_with_a_sentence(program, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SHIFTING)
    assert "does not match the version of the installed llama-cpp-python" in sentence_of(
        *program, PYTHONPATH=str(tmp_path)
    )
