"""A short campaign of `python -m bench faults`: no failure loses or changes an answer."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.real


@pytest.mark.parametrize(("kinds", "pace"), [("all", 6), ("hostile", 60)])
def test_no_answer_is_lost_or_changed_whatever_fails(kinds, pace):
    command = [sys.executable, "-m", "bench", "faults", "--quick", "--control", "0", "--seed", "8"]
    done = subprocess.run(
        [*command, "--requests", "12", "--distinct", "6", "--pace", str(pace), "--faults", kinds],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert row["requests"] == 12
    assert row["faults"] > 0
