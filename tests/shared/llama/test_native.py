"""llama.cpp's functions without the classes of llama-cpp-python."""

import pytest

from tests.python_runs import run_python, sentence_of

CODE = """
from shared.llama.native import llama_cpp, llama_cpp_ext
import llama_cpp as imported
assert imported is llama_cpp
assert callable(llama_cpp.llama_decode) and llama_cpp_ext.__name__ == "llama_cpp.llama_cpp_ext"
assert llama_cpp.llama_cpp.llama_decode is llama_cpp.llama_decode and llama_cpp.__file__
assert not hasattr(llama_cpp, "Llama")
"""
WHOLE = """
import llama_cpp
from shared.llama import native
assert native.llama_cpp is llama_cpp and llama_cpp.Llama
"""


LACKING = """
import ctypes
found = ctypes.CDLL.__getattr__

def lacking(library, name):
    if name in ("llama_n_seq_max", "llama_get_ctx_other") or "llama_get_ctx_other" in name:
        raise AttributeError(name)
    return found(library, name)

ctypes.CDLL.__getattr__ = lacking
from shared.errors import MissingFunctionError
from shared.llama.native import llama_cpp, llama_cpp_ext
assert llama_cpp.llama_supports_mmap()
for call in (lambda: llama_cpp.llama_n_seq_max(None), lambda: llama_cpp_ext.llama_get_ctx_other(None)):
    try:
        call()
    except MissingFunctionError as error:
        assert "has no llama_" in str(error), error
    else:
        raise SystemExit("it has been called")
"""


CODES = {
    "whoever imports it later gets the same functions": CODE,
    "a program that has imported the whole package keeps it": WHOLE,
    "a function that the library lacks is missed only when it is called": LACKING,
}


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_in_a_process_of_its_own(code):
    run_python("-c", code, check=True)


@pytest.mark.parametrize("program", [["lead"], ["lead", "generate"], ["lead", "--check"], ["back"]])
def test_without_a_library_a_program_ends_with_a_sentence(program, tmp_path):
    assert "llama.cpp cannot be loaded" in sentence_of(*program, LLAMA_CPP_LIB_PATH=str(tmp_path))
