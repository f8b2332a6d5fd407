from pathlib import Path

import pytest

from bench import peer
from shared.errors import ConfigError

DRAFT = Path("d.gguf")


def test_newer_versions_have_to_be_told_to_use_the_draft_model():
    arguments = peer.draft_arguments("--spec-draft-n-max N  --spec-type none,draft-simple", DRAFT, 5)
    assert arguments == [
        *("-md", "d.gguf", "--spec-draft-n-max", "5", "--spec-draft-n-min", "0"),
        *("--spec-type", "draft-simple"),
    ]


def test_older_versions_have_other_names():
    arguments = peer.draft_arguments("--draft-max N", DRAFT, 3)
    assert arguments == ["-md", "d.gguf", "--draft-max", "3", "--draft-min", "0"]


def test_the_binary_is_named_with_its_program(tmp_path):
    path = tmp_path / "llama-server"
    path.touch()
    assert peer.find(f"llama-server={path}") == path


@pytest.mark.parametrize("option", ["llama-server", "llama-server=/no/such", "vllm=/bin/sh", ""])
def test_anything_else_is_refused(option):
    with pytest.raises(ConfigError, match="write llama-server=PATH"):
        peer.find(option)


def test_a_server_that_ends_at_once_is_reported_with_its_words(tmp_path):
    binary = tmp_path / "llama-server"
    binary.write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
    binary.chmod(0o755)
    with pytest.raises(ConfigError, match="no such model"):
        peer.Peer(binary, Path("t.gguf"), "0")
