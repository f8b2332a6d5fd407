"""The functions of llama.cpp without the classes of the package."""

import os
import subprocess
import sys

import pytest

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


def run(code):
    subprocess.run([sys.executable, "-c", code], check=True)


def test_whoever_imports_it_later_gets_the_same_functions():
    run(CODE)


def test_a_program_that_has_imported_the_whole_package_keeps_it():
    run(WHOLE)


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


def test_a_function_that_the_library_lacks_is_missed_only_when_it_is_called():
    run(LACKING)


@pytest.mark.parametrize("program", [["lead"], ["lead", "generate"], ["lead", "--check"], ["back"]])
def test_without_a_library_a_program_ends_with_a_sentence(program, tmp_path):
    environment = os.environ | {"LLAMA_CPP_LIB_PATH": str(tmp_path)}
    command = [sys.executable, "-m", *program]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == 1
    assert "llama.cpp cannot be loaded" in ended.stderr
    assert "Traceback" not in ended.stderr
