import signal

import pytest

from shared.model_files.builtin import builtin_draft
from tests.python_runs import run_python

INTERRUPT = """
import signal, sys

class Interrupt:
    def find_spec(name, path=None, target=None):
        if name == "{program}":
            signal.raise_signal(signal.SIGINT)
            sys.exit("went on")

sys.meta_path.insert(0, Interrupt)
from {way_in} import {main}
{main}()
"""


def interrupted(way_in, main, program):
    return run_python("-c", INTERRUPT.format(way_in=way_in, main=main, program=program))


@pytest.mark.parametrize(
    ("way_in", "main", "program"),
    [
        ("lead.__main__", "main", "lead.cli"),
        ("lead.__main__", "main_as_llama_server", "lead.llama_server_cli"),
        ("back.__main__", "main", "back.cli"),
        ("chat.__main__", "main", "chat.program"),
    ],
)
def test_ctrl_c_during_the_imports_ends_the_program_without_a_word(way_in, main, program):
    ended = interrupted(way_in, main, program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_the_engine_goes_on_until_the_front_ends_it():
    assert "went on" in interrupted("lead.engine.__main__", "main", "lead.engine.worker").stderr


def test_ctrl_c_while_the_draft_model_is_loaded_ends_the_back_without_a_word():
    code = f"""
import signal, sys
from back import __main__, program
program.Model = lambda *_: signal.raise_signal(signal.SIGINT)
sys.argv = ["back", "--model", {str(builtin_draft())!r}]
__main__.main()
"""
    ended = run_python("-c", code)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize("way_in", ["lead", "back", "chat", "lead.engine"])
def test_a_way_in_imports_next_to_nothing(way_in):
    code = f"import sys, {way_in}.__main__; print({{'asyncio', 'pydantic', 'numpy'}} & sys.modules.keys())"
    assert run_python("-c", code, check=True).stdout == "set()\n"
