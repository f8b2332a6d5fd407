"""A short campaign of `python -m bench faults`: failing backs and links lose and change no answer."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real


def test_no_answer_is_lost_or_changed_while_backs_and_links_fail():
    command = [sys.executable, "-m", "bench", "faults", "--quick", "--control", "0", "--seed", "3"]
    done = subprocess.run(
        [*command, "--requests", "40", "--distinct", "16", "--faults", "back,link,lead"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert row["requests"] == 40
    assert row["faults"] > 0
