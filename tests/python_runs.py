"""Runs of Python in separate processes."""

import os
import subprocess
import sys


def run_python(*arguments, check=False, **options):
    """The result of `python arguments` with its output. `options`: of `subprocess.run`."""
    options = {"capture_output": True, "text": True} | options
    return subprocess.run([sys.executable, *arguments], check=check, **options)


def sentence_of(*program, **environment):
    """The error message of a program that ends with status 1 and no traceback.

    `environment`: variables besides the usual ones.
    """
    ended = run_python("-m", *program, env=os.environ | environment)
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    return ended.stderr
