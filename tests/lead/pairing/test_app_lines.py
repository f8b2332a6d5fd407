"""A shell and YAML read the lines for common programs as they are meant."""

import os
import ssl
import subprocess

import pytest
import yaml

from lead.pairing.app_lines import app_lines, shown_fingerprint

PEM = ssl.DER_cert_to_PEM_cert(b"a certificate")
LINES = app_lines(("10.0.0.1:5556", "desk.local:5556"), "the-key", "qwen3:8b", PEM)


def test_other_addresses_are_named():
    assert "Other addresses of this lead: desk.local:5556" in LINES
    assert "Other addresses" not in app_lines(("10.0.0.1:5556",), "k", "m", PEM)


def test_a_fingerprint_is_shown_as_systems_show_it():
    shown = shown_fingerprint(PEM)
    assert shown == shown.upper()
    assert len(shown.split(":")) == 32
    assert f"\n    {shown}\n" in LINES


def test_continue_reads_its_lines():
    (model,) = yaml.safe_load(LINES.partition("under `models:`:\n")[2])
    assert (model["apiBase"], model["apiKey"], model["model"]) == (
        "https://10.0.0.1:5556/v1",
        "the-key",
        "qwen3:8b",
    )


@pytest.mark.parametrize("model", ["qwen3:8b", 'it\'s "$(touch gone)"'])
def test_a_shell_and_llm_read_its_lines_as_they_are_shown(tmp_path, model):
    llm = tmp_path / "llm"
    llm.write_text(f"#!/bin/sh\n[ $1 != logs ] || echo {tmp_path}/logs.db\n")
    llm.chmod(0o700)
    shown = app_lines(("10.0.0.1:5556",), "the-key", model, PEM)
    lines = shown.partition("\nllm:\n")[2].partition("\n\n")[0]
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(
        ["/bin/sh"], input=lines, text=True, check=True, timeout=30, cwd=tmp_path, env={"PATH": path}
    )
    (entry,) = yaml.safe_load((tmp_path / "extra-openai-models.yaml").read_text())
    assert (entry["model_name"], entry["api_base"]) == (model, "https://10.0.0.1:5556/v1")
    assert not (tmp_path / "gone").exists()


def test_names_with_spaces_are_one_word():
    assert "llm -m 'My Model'" in app_lines(("10.0.0.1:5556",), "k", "My Model", PEM)
