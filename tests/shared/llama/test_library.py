"""The kernel on the CPU, in a build with one kernel and in a build with a kernel for each kind of CPU."""

import logging
import re

import pytest

from shared.errors import LibraryError
from shared.llama import library
from shared.llama.native import llama_cpp

RPC_LOADED = "load_backend: loaded RPC backend from /lib/libggml-rpc.so"


@pytest.fixture
def loading(tmp_path, monkeypatch):
    """The log lines of llama.cpp while it loads the kernel, in a build that has two."""
    for name in ("libllama.so", "libggml-cpu-zen4.so", "libggml-cpu-armv8.2_1.so"):
        (tmp_path / name).touch()
    lines = [RPC_LOADED]

    def load(path):
        assert path == bytes(tmp_path)
        for line in lines:
            library._forward(2, line.encode(), None)

    functions = {"ggml_backend_reg_count": lambda: 0, "ggml_backend_load_all_from_path": load}
    monkeypatch.setattr(library, "function", functions.__getitem__)
    monkeypatch.setattr(library, "add_library", lambda _: None)
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    monkeypatch.setattr(library, "start", library.start.__wrapped__)
    return lines


@pytest.fixture
def chosen(tmp_path, loading):
    loading.append(f"load_backend: loaded CPU backend from {tmp_path}/libggml-cpu-zen4.so")


@pytest.mark.usefixtures("chosen")
def test_the_kernel_that_was_loaded_is_named():
    assert library.kernel() == "zen4"
    assert library.describe_kernel().startswith("zen4 (")


def test_so_is_one_with_a_dot_in_its_name(tmp_path, loading):
    loading.append(f"load_backend: loaded CPU backend from {tmp_path}/libggml-cpu-armv8.2_1.so")
    assert library.kernel() == "armv8.2_1"


@pytest.mark.usefixtures("chosen")
def test_only_the_kernel_in_use_belongs_to_the_build():
    build = library.build().splitlines()
    assert "zen4" in build
    assert [line.split()[0] for line in build if ".so" in line] == ["libggml-cpu-zen4.so", "libllama.so"]


@pytest.mark.usefixtures("loading")
def test_where_no_kernel_fits_a_sentence_says_what_to_do():
    with pytest.raises(LibraryError, match=r"no CPU kernel in .* runs on this CPU. Compile llama\.cpp"):
        library.start()


def test_the_instructions_are_those_that_llama_cpp_says_it_uses():
    described = library.describe_kernel()
    used = re.findall(r"(\w+) = 1", llama_cpp.llama_print_system_info().decode())
    assert described == f"{library.kernel()} ({', '.join(used)})"
    assert "LLAMAFILE" in used


def test_errors_that_somebody_explains_are_collected_and_logged_at_debug(caplog):
    caplog.set_level(logging.DEBUG)
    with library.explained_errors() as outer:
        with library.explained_errors() as inner:
            library._forward(4, b"first", None)
        library._forward(4, b"second", None)
    library._forward(4, b"third", None)
    assert (inner, outer) == (["first"], ["second"])
    assert [each.message for each in caplog.records if each.levelno == logging.ERROR] == ["third"]
