import subprocess
import sys

import pytest

PROGRAM = """
import os, subprocess, sys
from shared.standard_streams import open_closed_streams

open_closed_streams()
with open(os.devnull) as next_file:
    assert next_file.fileno() > 2, next_file
assert sys.stdin.read() == ""
print("a result", flush=True)
print("a message", file=sys.stderr, flush=True)
child = "import sys; assert None not in (sys.stdin, sys.stdout, sys.stderr)"
subprocess.run([sys.executable, "-c", child], check=True)
"""


@pytest.mark.parametrize(
    "closed", ["", "<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
)
def test_a_program_that_is_started_without_some_of_them_has_all(closed):
    shell = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-c", PROGRAM]
    ended = subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        0,
        "" if ">&-" in closed.replace("2>&-", "") else "a result\n",
        "" if "2>&-" in closed else "a message\n",
    )


@pytest.mark.parametrize("program", ["lead", "back", "chat"])
def test_each_program_sees_to_it(program):
    shell = ["sh", "-c", '"$@" <&- >&-', "sh", sys.executable, "-m", program, "--version"]
    ended = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
