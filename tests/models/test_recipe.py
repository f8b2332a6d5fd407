"""The recipe's corpus repeats byte for byte. The shipped pair was trained on the data of these digests."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[2] / "models" / "recipe" / "corpus.py"
WIDE = ["--wide", "--hard", "2", "--max-number", "12", "--trouble", "0.85", "--begin", "0.3"]


def generate(folder: Path, *options: str) -> tuple[bytes, bytes]:
    """The dialogues for training, and the held-out dialogues."""
    command = [sys.executable, "-B", str(CORPUS), "--out", str(folder), "--dialogues", "400", *options]
    # It imports its neighbors, which a variable that programs under test set in this process forbids.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    subprocess.run(command, check=True, env=inherited)
    return (folder / "train.jsonl").read_bytes(), (folder / "heldout.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("options", "digest"),
    [
        ([], "18f4a1ab5543685e2e4d972b9f06943df87b204c4229a8dae410e34905da841b"),
        (WIDE, "94ec474bef61581848c8716def213d5ae6157c75aa0c35affd8c1164d1a14764"),
    ],
    ids=["default", "wide"],
)
def test_the_corpus_is_the_one_trained_on(tmp_path: Path, options: list[str], digest: str) -> None:
    training, heldout = generate(tmp_path, *options)
    assert hashlib.sha256(training + heldout).hexdigest() == digest


def test_another_seed_gives_another_corpus(tmp_path: Path) -> None:
    one, other = generate(tmp_path / "one"), generate(tmp_path / "other", "--seed", "2")
    assert one != other


def test_users_and_assistants_take_turns(tmp_path: Path) -> None:
    training, heldout = generate(tmp_path)
    for line in (training + heldout).decode().splitlines():
        roles = [message["role"] for message in json.loads(line)["messages"] if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
