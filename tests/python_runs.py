"""Python in processes of their own."""

import os
import subprocess
import sys


def run_python(*arguments, check=False, **options):
    """How `python arguments` ends, and what it prints; `options` are those of `subprocess.run`."""
    options = {"capture_output": True, "text": True} | options
    return subprocess.run([sys.executable, *arguments], check=check, **options)


def sentence_of(*program, **environment):
    """What a program says that ends with status 1 and no traceback; `environment` adds to the usual one."""
    ended = run_python("-m", *program, env=os.environ | environment)
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False)
    return ended.stderr
