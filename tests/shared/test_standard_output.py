"""In a process of its own: standard output is its own, and so is its end."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from shared.standard_output import print_text; print_text('the result')"


def run(stdout):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, stdout=stdout, stderr=subprocess.PIPE, text=True
    )


def test_it_is_written():
    done = run(subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the result\n", "")


def test_a_reader_that_is_gone_is_no_error():
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as reader:
        reader.wait()
        done = run(reader.stdin)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_a_full_disk_is_told_in_a_sentence():
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = run(full)
    assert (done.returncode, done.stderr) == (1, "the result cannot be written: No space left on device\n")
