"""The functions of llama.cpp without the classes of the package."""

import subprocess
import sys

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
