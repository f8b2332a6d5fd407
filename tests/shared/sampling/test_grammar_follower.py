"""Following one grammar: a process that has kept much memory says so."""

import subprocess
import sys

KEEP = """
from shared.sampling.grammar_follower import MemoryLimit
limit = MemoryLimit()
assert not limit.is_near
kept = bytearray(100 << 20)
assert limit.is_near
try:
    bytearray(1 << 30)
except MemoryError:
    print("limited")
"""


def test_memory_is_limited_and_what_is_kept_is_noticed():
    done = subprocess.run([sys.executable, "-c", KEEP], capture_output=True, text=True, check=True)
    assert done.stdout == "limited\n"
